"""Weight matching by others, whose own code runs: git-re-basin from a clone of its repository, rebasin from PyPI.

    git clone https://github.com/samuela/git-re-basin FOLDER
    python benchmarks/table.py --only git-re-basin --peer FOLDER

    pip install rebasin torchvision "bayesin[torch]"    (rebasin's wheel, unpacked to a FOLDER, will do)
    python benchmarks/table.py --only ", rebasin" --peer rebasin    (or the FOLDER)

The module of git-re-basin runs as published, in the order of sweeps that it draws. What it imports from its `utils`,
one function of those that are there, is given to it here: the others ask for functions that JAX no longer has.
rebasin matches modules of PyTorch, in an order of its own; what is timed neither traces them nor moves what was
matched.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np

from _torchvision import import_torchvision
from bayesin import PermutationSpec, discover, models

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


class Modules(NamedTuple):
    """Two networks of PyTorch as both see them."""

    match: Callable[[], None]  # rebasin's search, from the beginning
    objective: Callable[[], float]  # squared distance of the weights, where that has ended
    target: dict
    source: dict
    spec: PermutationSpec
    statistics: frozenset[str]  # which rebasin does not compare


def rebasin(where: str, name: str) -> Modules:
    """Returns two fresh networks and rebasin's search on them; `where` is a folder with its package, or its name."""
    import torch  # pyright: ignore[reportMissingImports]

    if Path(where).is_dir():
        sys.path.insert(0, where)
    descent = importlib.import_module("rebasin").PermutationCoordinateDescent
    torch.set_num_threads(1)
    torch.manual_seed(KEY)
    one, other, example = *(_module(name, torch) for _ in range(2)), _example(name, torch)
    found = descent(one, other, example)
    graph = found.pinit.model_graph
    start = [perm.perm_indices.clone() for perm, _ in graph.permutation_to_info]

    def match() -> None:
        torch.manual_seed(KEY)  # which decides its order
        for (perm, _), indices in zip(graph.permutation_to_info, start, strict=True):
            perm.perm_indices = indices
        with torch.no_grad():
            found.calculate_permutations()

    def objective() -> float:
        found.apply_permutations()
        theirs = dict(other.named_parameters())
        gaps = ((w - theirs[path]).detach().double() for path, w in one.named_parameters())
        return sum(float((gap**2).sum()) for gap in gaps)

    adapted = [models.from_torch(module, example.numpy()) for module in (one, other)]
    target, source = (
        {path: np.array(leaf) for path, leaf in each.init(jax.random.key(0)).items()} for each in adapted
    )
    spec = discover(adapted[0].apply, target, example.numpy())
    return Modules(match, objective, target, source, spec, frozenset(adapted[0].statistics))


def _module(name: str, torch: Any) -> Any:
    if name == "ResNet18":
        import_torchvision()
        return importlib.import_module("torchvision").models.resnet18().eval()
    widths = (784, 512, 512, 512, 10)
    layers = [torch.nn.Linear(before, after) for before, after in pairwise(widths)]
    pairs = [each for layer in layers for each in (layer, torch.nn.ReLU())]
    return torch.nn.Sequential(*pairs[:-1]).eval()


def _example(name: str, torch: Any) -> Any:
    return torch.zeros((1, 3, 64, 64) if name == "ResNet18" else (1, 784))
