"""How each primitive carries factors from its inputs to its outputs.

A rule takes an equation and the axes of the arrays it reads, joins, cuts and fixes them as the operation
demands, and returns the axes of the arrays it makes. It is right if, for all permutations that are left,

    operation(permuted inputs) == permuted operation(inputs).

A primitive that is not in the table is frozen: fewer symmetries, never a wrong one.
"""

from collections.abc import Callable

from ..factors import Array
from . import blocks, calls, constants, contraction, elementwise, indexing, reductions, shapes
from .equation import Equation as Equation
from .equation import freeze as freeze

Rule = Callable[..., list[Array]]

RULES: dict[str, Rule] = {
    **elementwise.RULES,
    **contraction.RULES,
    **shapes.RULES,
    **reductions.RULES,
    **blocks.RULES,
    **indexing.RULES,
    **constants.RULES,
    **calls.RULES,
}
