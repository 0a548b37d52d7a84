"""How each primitive carries factors from its inputs to its outputs.

A rule takes an equation and the axes of the arrays it reads, joins, cuts and fixes them as the operation
demands, and returns the axes of the arrays it makes. It is right if, for all permutations that are left,

    operation(permuted inputs) == permuted operation(inputs).

A primitive that is not in the table is frozen: fewer symmetries, never a wrong one.
"""

from collections.abc import Callable

from ..factors import Array
from . import basic, control, rearrange, reduction
from .basic import Equation as Equation
from .basic import closed_over as closed_over
from .basic import freeze as freeze

Rule = Callable[..., list[Array]]

RULES: dict[str, Rule] = {**basic.RULES, **reduction.RULES, **rearrange.RULES, **control.RULES}
ENTERING = frozenset(control.RULES)  # their equations stand for those inside
CALLING = frozenset(control.CALLS)  # what they hold is what is computed
SUMMING = ("dot_general", "conv_general_dilated", *reduction.SYMMETRIC)
# Operations that an axis may pass which chooses by another; where they sum over that, all it chooses from is one.
CHOOSING = frozenset((*basic.ENTRYWISE, *rearrange.FOLLOWING, *control.RULES, *SUMMING))
DROPPING = frozenset(rearrange.DROPPING)  # what they leave out does not go into the result
