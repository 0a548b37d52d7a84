"""What a posterior is: four members, and nothing to inherit from.

`align` compares means and stds and moves the posterior with `permute`; `predict`, `evaluate` and `barrier` average
over `sample(key, n)`; `geodesic` needs one of the families it knows a path for, or takes the
mean-field Gaussian with the posterior's mean and std.
"""

import inspect
from typing import Protocol, Self, TypeGuard, runtime_checkable

from ..errors import PosteriorError
from ..randomness import PRNGKey
from ..symmetry import Perms, PermutationSpec
from ..trees import Tree

MEMBERS = ("mean", "std", "sample", "permute")


@runtime_checkable
class Posterior(Protocol):
    """A distribution over the weights of one network; `Gaussian`, `LowRankGaussian` and `Samples` are three.

    A class of your own with these members, as properties or fields, can be used wherever these can.

    Example:
        >>> import bayesin, numpy as np
        >>> q = bayesin.Gaussian.point({"w": np.ones(2)})
        >>> isinstance(q, Posterior), isinstance({"w": np.ones(2)}, Posterior)
        (True, False)
    """

    @property
    def mean(self) -> Tree:
        """The mean of every weight, a parameter tree."""
        ...

    @property
    def std(self) -> Tree:
        """The marginal standard deviation of every weight, in a tree like `mean`."""
        ...

    def sample(self, key: PRNGKey, count: int, /) -> Tree:
        """Returns `count` draws: a parameter tree whose leaves have one more axis in front."""
        ...

    def permute(self, spec: PermutationSpec, perms: Perms, /) -> Self:
        """Returns the posterior with the hidden units of every group reordered."""
        ...


def is_posterior(value: object) -> TypeGuard[Posterior]:
    """Whether a value has the four members; unlike `isinstance` this does not compute `mean` and `std`.

    Raises:
        PosteriorError: it is the result of a verb, which holds a posterior and would be taken for a tree of weights.
    """

    if type(value) is dict:  # most trees are; a class of one's own may have members, whatever it is made of
        return False

    def has(name: str) -> bool:
        return inspect.getattr_static(value, name, None) is not None

    if all(map(has, MEMBERS)):
        return True
    for name in filter(has, ("posterior", "posteriors")):
        several = " or one of its .posteriors" if name == "posterior" and has("posteriors") else ""
        raise PosteriorError(f"{type(value).__name__} holds a posterior and is none: give its .{name}{several}")
    return False
