"""Alignment of posteriors that are larger than memory, from file to file.

The search reads tensors one at a time, in the precision that they have, and the moved source is written a tensor at
a time. What stays in memory is similarities, (units × units) for the widest group, and one tensor of either file. A
file that somebody changes meanwhile is refused by name.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..matching import Alignment, align
from ..posteriors import Posterior
from ..randomness import PRNGKey
from ..symmetry import Perms, PermutationSpec, Signs
from ..trees import Tree
from .artifacts import Description, describe, load_posterior, save_permuted


def align_files(
    target: Path | str,
    source: Path | str,
    out: Path | str,
    *,
    key: PRNGKey,
    spec: PermutationSpec | None = None,
    metadata: Mapping[str, Any] | None = None,
    about: Description | None = None,
    **options: Any,
) -> Alignment:
    """Aligns the posterior in one file to that in another and writes it, moved, to a third.

    Args:
        target: a file of `save_posterior`; bfloat16 and float16 stay what they are.
        source: another of the same network.
        out: where the source goes, moved. It replaces an older file in one step.
        key: as in `align`.
        spec: which axes move together; by default what the source's file says.
        metadata: what the new file says of itself; by default what the source says.
        about: what `describe` said of the source, where `metadata` come from it.
        options: the other arguments of `align`.

    Returns:
        The alignment; its `posterior` reads from the new file.

    Raises:
        ConfigError: no spec is given and the source has none.
        ArtifactError: a file that is missing, damaged, changed meanwhile, or no posterior of bayesin.

    Example:
        >>> import tempfile
        >>> import jax, numpy as np
        >>> from bayesin import permute, save_posterior
        >>> spec = PermutationSpec.parse({"w0": ["2", "g0"], "w1": ["g0", "1"]}, {"g0": 3})
        >>> p = {"w0": np.array([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]]), "w1": np.array([[1.0], [5.0], [9.0]])}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     q = permute(p, spec, {"g0": np.array([2, 0, 1])})
        ...     a, b = (save_posterior(f"{folder}/{i}.safetensors", x, spec=spec) for i, x in enumerate((p, q)))
        ...     found = align_files(a, b, f"{folder}/moved.safetensors", key=jax.random.key(0))
        ...     found.perms["g0"].tolist(), found.posterior["w1"].ravel().tolist()
        ([1, 2, 0], [1.0, 5.0, 9.0])
    """
    about = describe(source) if about is None else about
    known = about.spec if spec is None else spec
    if known is None:
        raise ConfigError(f"{source} holds no permutation spec; pass spec, as discover finds it")
    described = about.metadata if metadata is None else metadata

    def move(posterior: Posterior | Tree, spec: PermutationSpec, perms: Perms, signs: Signs) -> Posterior | Tree:
        save_permuted(out, posterior, spec, perms, signs=signs, metadata=described)
        return load_posterior(out, mapped=True)

    ours, theirs = load_posterior(target, mapped=True), load_posterior(source, mapped=True, about=about)
    return align(ours, theirs, known, key=key, move=move, **options)
