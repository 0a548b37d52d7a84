"""Inference: every fit takes (key, model, data, config) and returns a `Fit`."""

from .fit import Fit as Fit
from .vi import VI as VI
from .vi import fit_vi as fit_vi
