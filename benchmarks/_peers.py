"""The weight matching of git-re-basin, from a clone of its repository, in the order of sweeps that it draws.

    git clone https://github.com/samuela/git-re-basin FOLDER
    python benchmarks/table.py --only git-re-basin --peer FOLDER

Its module runs as published. What it imports from its `utils`, one function of those that are there, is given to it
here: the others ask for functions that JAX no longer has.
"""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import jax
import numpy as np

from bayesin import PermutationSpec

KEY, SWEEPS = 0, 100


def git_re_basin(folder: Path, spec: PermutationSpec) -> tuple[Callable[[dict, dict], dict], list[list[str]]]:
    """Returns its weight matching of points, `(target, source) -> perms`, and the order in which it visits groups."""
    utils = ModuleType("utils")
    vars(utils)["rngmix"] = lambda key, number: jax.random.fold_in(key, hash(number))
    before = sys.modules.get("utils")
    sys.modules["utils"] = utils
    try:
        found = importlib.util.spec_from_file_location("weight_matching", folder / "src" / "weight_matching.py")
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
    finally:
        sys.modules.pop("utils")
        if before is not None:
            sys.modules["utils"] = before
    axes = {path: tuple(axis[0][0].group if axis[0] else None for axis in axes) for path, axes in spec.parameters}
    theirs = module.permutation_spec_from_axes_to_perm(axes)
    names = list(theirs.perm_to_axes)
    key = jax.random.key(KEY)
    orders = (jax.random.permutation(utils.rngmix(key, sweep), len(names)) for sweep in range(SWEEPS))
    # `p_ix` of theirs indexes a list of names, as is done here.
    order = [[names[int(at)] for at in np.asarray(each)] for each in orders]

    def match(target: dict, source: dict) -> dict:
        # On the device as its users have them; only what it computes is timed.
        return module.weight_matching(key, SimpleNamespace(**theirs._asdict()), target, source, SWEEPS, silent=True)

    return match, order
