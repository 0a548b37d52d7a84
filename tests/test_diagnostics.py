"""Chains judged modulo symmetry: shuffled draws mix once they are in one order, other functions never do."""

import warnings

import jax
import numpy as np
import pytest

import training_toys as toys
from bayesin import HMC, Samples, compact, diagnose_chains, fit_hmc, permute
from bayesin.errors import ConfigError, PosteriorError
from bayesin.inference import mixing_of
from bayesin.inference.mixing import rhat_bound
from test_compact import INPUTS, ONE, apply_one

KEY = jax.random.key(1)


def chains(functions=1, count=4, draws=20, seed=0):
    """Draws of one network (or of several, one a chain), every draw with its units in another order."""
    rng = np.random.default_rng(seed)
    nets = [{path: 2 * rng.normal(size=ONE.shape(path)) for path in ONE.axes} for _ in range(functions)]
    every = []
    for chain in range(count):
        for _ in range(draws):
            net = {
                p: (w + 0.05 * rng.normal(size=w.shape)).astype(np.float32)
                for p, w in nets[chain % functions].items()
            }
            every.append(permute(net, ONE, {"g0": rng.permutation(6) if chain else np.arange(6)}))
    return Samples.stack(every)


def test_shuffled_chains_visit_one_basin_and_other_functions_do_not():
    same = diagnose_chains(chains(), ONE, apply_one, INPUTS, key=KEY, chains=4)
    assert same.one_basin and not same.as_they_came.mixed and "one basin" in repr(same)
    apart = diagnose_chains(chains(functions=2), ONE, apply_one, INPUTS, key=KEY, chains=4)
    assert not apart.one_basin and not apart.predictions.mixed
    with pytest.raises(ConfigError, match="how many chains"):
        diagnose_chains(chains(), ONE, apply_one, INPUTS, key=KEY)
    with pytest.raises(PosteriorError, match="at least four"):
        diagnose_chains(chains(draws=2), ONE, apply_one, INPUTS, key=KEY, chains=4)


def test_independent_draws_pass_nineteen_times_in_twenty():
    """Where a bound of 1.01 would fail all of them, and one of 1.1 says nothing about few draws."""
    rng = np.random.default_rng(3)
    found = [mixing_of(rng.normal(size=(4, 30, 100))) for _ in range(30)]
    assert sum(one.mixed for one in found) >= 23  # four standard errors of 30 tries of 0.95
    assert min(one.rhat_max for one in found) > 1.01
    assert rhat_bound(4, 8, 100) > rhat_bound(4, 30, 100) > rhat_bound(4, 30, 1) > 1


def test_unmixed_chains_warn_once():
    model, data = toys.mlp(), toys.blobs()
    start = Samples.stack([jax.tree.map(lambda leaf, s=s: leaf + s, model.init(KEY)) for s in (-3.0, 3.0)])
    still = HMC(samples=8, chains=2, burn_in=0, steps=1, step_size=1e-4, probe=8)
    with pytest.warns(UserWarning, match="have not mixed") as said:
        fit_hmc(KEY, model, data, still, start=start.params)
    assert len(said) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_hmc(KEY, model, data, HMC(samples=2, burn_in=0, steps=1, step_size=1e-4, probe=8))


def test_fits_and_folds_of_several_chains_say_whether_they_visit_one_basin():
    model, data = toys.mlp(), toys.blobs()
    fit = fit_hmc(KEY, model, data, HMC(samples=8, chains=2, burn_in=0, steps=1, step_size=1e-4, probe=8))
    assert fit.mixing is not None and fit.mixing.predictions is not None
    assert fit.mixing.predictions.quantities == fit.probes.shape[-1]
    assert not fit.mixing.weights.mixed and "not mixed" in repr(fit)  # both begin elsewhere and do not move
    same, apart = chains(), chains(functions=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folded = compact(same, ONE, key=KEY, chains=4, apply=apply_one, x=INPUTS)
    assert folded.mixing == diagnose_chains(same, ONE, apply_one, INPUTS, key=KEY, chains=4)
    assert folded.mixing.one_basin and "one basin" in repr(folded)
    with pytest.warns(UserWarning, match=r"have not mixed.*components=") as said:
        folded = compact(apart, ONE, key=KEY, chains=4)
    assert len(said) == 1 and folded.mixing.predictions is None and not folded.mixing.one_basin
    assert compact(same, ONE, key=KEY).mixing is None
