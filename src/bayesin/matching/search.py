"""Coordinate descent over the families of groups: one exact solution a step, accepted only if the objective falls.

A family is a group with all groups that it indexes (`families.py`); a plain group is one by itself. It is solved
again only after a neighbour moved. The search has converged when nothing is left to solve: no single family can be
improved with the others held fixed.

A group on several factors of one tensor (`x + Wx`) makes the objective quadratic in its permutation: an assignment
on the gradient may raise it. Such a step is accepted only if the objective itself falls; else swaps of two units
are tried, whose gain is known exactly for two factors from the gradient G and the 2 × 2 corners of the tensor
that a swap moves along both factors at once:

    gain(a, b) = G[a,b] + G[b,a] − G[a,a] − G[b,b] + corner(a, b).

Units that may flip are chosen with their sign (`twins.py`): the flat permutations say which, and such a group is
also tried one flip after another where the assignment does not help.

The first sweep is *anchored* unless a start is given: families are settled in the order of their evidence, from the
fixed axes inwards, and a tensor is evidence only once all its other units are settled, so that the first decisions
rest on what no permutation can change. It counts as one step, and is taken back if the objective did not fall.

Two networks that have little in common have many local minima of nearly the same height. A search that ends in one
may go on by kicks: half of the units of a family are thrown at random, its neighbours are solved, then itself and all
that moves; what did not lower the objective is taken back, what did counts as one step.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, count
from typing import NamedTuple, ParamSpec, TypeVar

import jax
import numpy as np

from ..errors import ConfigError
from ..randomness import PRNGKey, generator
from ..symmetry import Perms, PermutationSpec, Signs, gather, in_order
from .costs import widened
from .families import FlatPerms
from .nested import solve_family
from .problem import Problem, gain_of_units, objective_of_flat
from .similarity import Similarities
from .twins import better, carry, choose, twin_of

ROUNDING = 1e-12  # of the problem's scale: differences of float64 sums below it are noise
PLANTED = 0.5  # of the objective at the start: below it, what the two have in common was found
MOST_RESTARTS = 10_000
MOST_SWEEPS = 100_000  # for which an order is drawn before the search
KICKED = 20  # sweeps at most after a kick; where they do not suffice it is judged as it stands
PATIENCE = 5  # times the steps of the search before them that all kicks together may take

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Start(NamedTuple):
    """Where a search begins."""

    name: str
    perms: Perms
    anchored: bool  # whether its first sweep is


class Sweep(NamedTuple):
    """What a callback learns after every sweep.

    Example:
        >>> sweep = Sweep(number=2, objective=12.5, moved=3)
        >>> f"sweep {sweep.number}: {sweep.objective:g}"
        'sweep 2: 12.5'
    """

    number: int
    objective: float
    moved: int  # units moved in this sweep
    perms: Perms | None = None  # after it; None where several posteriors move at once


class DescentResult(NamedTuple):
    """Where a search ended and how it went."""

    perms: Perms
    start: float  # objective before the first step
    gains: tuple[float, ...]  # by which every accepted step lowered it, all positive
    sweeps: int
    converged: bool
    order: tuple[tuple[str, ...], ...]
    seconds: dict[str, float]
    signs: Signs
    flat: FlatPerms  # both, of every unit

    @property
    def objective(self) -> float:
        """Objective reached, by subtraction of the gains."""
        return self.start - sum(self.gains)


class _Step(NamedTuple):
    own: dict[str, np.ndarray]  # permutations of the members of a family
    flat: dict[str, np.ndarray]  # and of its units
    gain: float


def descend(
    similarities: Similarities,
    init: Perms,
    order: Iterable[tuple[str, ...]],
    relative_tolerance: float,
    on_sweep: Callable[[Sweep], None] | None = None,
    potentials: dict[str, np.ndarray] | None = None,
    anchored: bool = False,
    kicks: np.random.Generator | None = None,
    init_signs: Signs | None = None,
) -> DescentResult:
    """Runs sweeps in the given order until none helps or the order is used up.

    `potentials` of an earlier search on a similar problem make this one faster; they are updated in place. With
    `anchored`, the first sweep settles the families in the order of their evidence, and takes the place of the first
    one of `order`. With `kicks`, a search that has converged without finding what was planted goes on: families are
    thrown at random, and their neighbourhoods solved again, until as many steps as the search took find nothing.
    """
    search = _Search(similarities, init, init_signs, {} if potentials is None else potentials, relative_tolerance)
    start, used = search.value, []
    for sweep in order:
        if not search.unsolved:
            break
        before = search.perms_now() if on_sweep is not None else {}
        if anchored and not used:
            used.append(tuple(group for family in search.anchored_sweep() for group in search.groups(family)))
        else:
            used.append(tuple(sweep))
            search.sweep(family for group in sweep for family in search.structure.roots[group])
        # Only once converged: a kick leaves nothing unsolved behind it, and would forget families that are still to
        # be solved.
        if kicks is not None and not search.unsolved and search.value > PLANTED * start:
            search.kick_all(kicks)
            kicks = None
        if on_sweep is not None:
            here = search.perms_now()
            moved = sum(int((perm != before[group]).sum()) for group, perm in here.items())
            on_sweep(Sweep(len(used), search.value, moved, here))
    perms: Perms = {**search.perms}
    gains, converged = tuple(search.gains), not search.unsolved
    signs = search.structure.signs(search.flat, search.problem.spec)
    return DescentResult(perms, start, gains, len(used), converged, tuple(used), search.seconds, signs, search.flat)


def starts(spec: PermutationSpec, key: jax.Array, count: int, init: Perms | None, has_order: bool) -> list[Start]:
    """Returns `count` starts: the given one if there is one, an anchored one, the identity, then random ones.

    An order that was given is followed from the first sweep on, so that implementations can be compared: then no
    start is anchored.
    """
    identity = spec.identity()
    known = [Start("anchored", identity, True)] * (not has_order)
    known = [Start("init", init, False), *known] if init is not None else [*known, Start("identity", identity, False)]
    drawn = [Start(f"random {n}", spec.random(jax.random.fold_in(key, n + 1)), False) for n in range(1, count)]
    return [*known, *drawn][:count]


def check_effort(restarts: int, max_sweeps: int) -> None:
    """Refuses searches that cannot end in a lifetime, before orders and starts are drawn for all of them."""
    for name, value, most in (("restarts", restarts, MOST_RESTARTS), ("max_sweeps", max_sweeps, MOST_SWEEPS)):
        if not 1 <= value <= most:
            raise ConfigError(f"{name} is from 1 to {most:,}, not {value:,}")


def random_order(spec: PermutationSpec, key: PRNGKey, index: int, sweeps: int) -> Iterator[tuple[str, ...]]:
    """Yields the groups in a fresh random order for each sweep; `index` chooses one of many streams of the key."""
    groups, draws = list(spec.sizes), generator(key, "order", index)
    for _ in range(sweeps):
        yield tuple(groups[at] for at in draws.permutation(len(groups)))


class _Search:
    """The state that steps share: permutations, what is left to solve, potentials of each family, a clock."""

    def __init__(
        self,
        similarities: Similarities,
        init: Perms,
        signs: Signs | None,
        potentials: dict[str, np.ndarray],
        relative_tolerance: float,
    ):
        self.similarities, self.potentials, self.relative_tolerance = similarities, potentials, relative_tolerance
        self.problem = similarities.problem
        self.structure = self.problem.structure
        self.units = {family: similarities.units_of(family) for family in self.structure.families}
        self.neighbours = _neighbours(similarities)
        self.work: dict[int, np.ndarray] = {}
        self.seconds = {"similarity": 0.0, "assignment": 0.0, "objective": 0.0}
        self.gains: list[float] = []
        self.linear = {family for family in self.structure.families if similarities.is_linear(family)}
        self.solved = 0  # how often a family was
        self.restart(init, self.structure.flat(init, signs))
        self.value = self.objective()

    def restart(self, init: Perms, flat: FlatPerms) -> None:
        """Goes (back) to given permutations; `flat` has their signs too."""
        self.perms: dict[str, np.ndarray] = {group: np.array(perm, np.int64) for group, perm in init.items()}
        self.flat = dict(flat)
        self.unsolved = {family for family, units in self.units.items() if units}
        self.similarities.forget()

    def objective(self) -> float:
        """The objective as it is at present, from its definition."""
        return self.timed("objective", objective_of_flat, self.problem, self.flat)

    @property
    def floor(self) -> float:
        """What a step must gain."""
        return self.relative_tolerance * max(self.value, 0.0) + ROUNDING * self.problem.scale

    def perms_now(self) -> dict[str, np.ndarray]:
        """A copy of the permutations."""
        return {group: perm.copy() for group, perm in self.perms.items()}

    def groups(self, family: str) -> list[str]:
        """The groups that have a member in a family."""
        return list(dict.fromkeys(self.structure.members[name].group for name in self.structure.families[family]))

    def sweep(self, families: Iterable[str]) -> None:
        """Takes the step of every family that is not solved."""
        for family in families:
            if family in self.unsolved:
                # Before the step: a family that is its own neighbour is put back by it.
                self.unsolved.discard(family)
                step = self.step(family, self.floor)
                if step is not None:
                    self.take(step)
                    self.count(step.gain)
                    self.unsolved |= self.neighbours[family]

    def anchored_sweep(self) -> list[str]:
        """Settles all families by their evidence, as one step; returns them in the order in which they were."""
        before, flat = self.perms_now(), dict(self.flat)
        families = self.settle(self.neighbours)
        # From the objective: steps that saw a part of the evidence cannot say what they gained.
        gain = self.value - self.objective()
        if gain > self.floor:
            self.count(gain)
            # Who was settled after all neighbours has seen them where they are, and is solved. A family counts among
            # those that are later than itself, so that its own neighbour stays unsolved.
            later = {family: set(families[at:]) for at, family in enumerate(families)}
            self.unsolved = {family for family in self.unsolved if self.neighbours[family] & later[family]}
        else:
            self.restart(before, flat)
        return families

    def kick_all(self, draws: np.random.Generator) -> None:
        """Kicks families at random, those with the fewest neighbours first, and keeps what lowers the objective.

        They end when as many steps as the search took before them have found nothing.
        """
        families, took = self._worth_a_kick(), self.solved
        end, found = (1 + PATIENCE) * took, took
        orders = (draws.permutation(families) for _ in count())
        rounds = (sorted(order, key=lambda family: len(self.neighbours[family])) for order in orders)
        for family in chain.from_iterable(rounds) if families else ():
            if self.solved >= min(found + took, end):
                break
            before, flat, value, steps = self.perms_now(), self.flat.copy(), self.value, len(self.gains)
            # The sweeps in a kick count what they gained from a state that was thrown up; of all that only the
            # difference to where the search stood is a gain, and one step.
            lost = self._kick(str(family), draws)
            gained = self.gains[steps:]
            del self.gains[steps:]
            self.value = value
            # Most kicks end far above where the search stood, and then what their steps said is enough to know.
            rounding = self.similarities.rounding * (2 + len(gained)) * self.problem.scale
            may_gain = sum(gained) - lost + rounding > self.floor
            gain = value - self.objective() if may_gain else 0.0
            if gain > self.floor:
                self.count(gain)
                found = self.solved
            else:
                self.perms, self.flat = before, flat

    def _worth_a_kick(self) -> list[str]:
        """Families whose neighbourhood can settle otherwise while the rest of the network stays.

        With one neighbour a family returns to where it was. A stream, on most of whose numbers hang families that
        have no other neighbour, takes all of them along: that is a new search, and costs as much.
        """
        others = {family: near - {family} for family, near in self.neighbours.items() if self.units[family]}
        leaves = {family for family, near in others.items() if len(near) < 2}
        units = self.structure.units
        hanging = {name for name, unit in units.items() if unit.family in leaves}

        def shared(family: str, names: set[str]) -> float:
            return self._evidence(family, names) - self._evidence(family, set())

        inner = (family for family in others if family not in leaves)
        return [family for family in inner if 2 * shared(family, hanging) <= shared(family, set(units))]

    def _kick(self, family: str, draws: np.random.Generator) -> float:
        """Throws half of a family at random; its neighbours follow, then itself, then all that it takes.

        Returns what the throw alone cost, up to rounding; minus infinity where the similarity does not know.
        """
        own = {name: self.structure.own(self.perms, name).copy() for name in self.structure.families[family]}
        for perm in own.values():
            places = draws.permutation(perm.shape[-1])[: max(2, perm.shape[-1] // 2)]
            # `permuted` shuffles the rows of an indexed group independently; `permutation` would keep them together.
            perm[..., places] = draws.permuted(perm[..., places], axis=-1)
        known = self._matrices(family, None) if family in self.linear else {}
        thrown = self._as_step(family, own, known)
        self.take(thrown)
        self.unsolved = self.neighbours[family] | {family}
        # A set of names has another order in every process, since Python salts their hashes.
        near = sorted(self.neighbours[family] - {family}, key=list(self.neighbours).index)
        # Neighbours first: solved at once, the family would return to where it was, as nothing else has moved.
        for sweep in ([*near, family], *([list(self.neighbours)] * KICKED)):
            self.sweep(sweep)
        self.unsolved = set()
        return -thrown.gain if known else -np.inf

    def count(self, gain: float) -> None:
        """Notes by how much a step lowered the objective."""
        self.gains.append(gain)
        self.value -= gain

    def take(self, step: _Step) -> None:
        """Takes a step."""
        for name, perm in step.own.items():
            member = self.structure.members[name]
            # Of an indexed group a member may be one row, and is written in place: copies are taken before a kick.
            if self.perms[member.group].ndim == 1:
                self.perms[member.group] = perm
            else:
                self.perms[member.group][member.at] = perm
        self.flat |= step.flat

    def settle(self, neighbours: dict[str, set[str]]) -> list[str]:
        """Settles all families, that with most evidence a unit first; returns them in this order."""
        settled: list[str] = []
        among: set[str] = set()
        counts = {family: self._evidence(family, among) for family in neighbours}
        while counts:
            family = max(counts, key=lambda name: counts[name])  # the first of equals, in the order of the spec
            # Without evidence every order is as good, and the family stays where it is.
            if counts.pop(family):
                matrices = self.timed("similarity", self._matrices, family, among)
                self.take(self._solution(family, matrices))
            settled.append(family)
            among |= {name for name, unit in self.structure.units.items() if unit.family == family}
            counts |= {other: self._evidence(other, among) for other in neighbours[family] if other in counts}
        return settled

    def step(self, family: str, floor: float) -> _Step | None:
        """The step that lowers the objective by more than `floor`, or None."""
        matrices = self.timed("similarity", self._matrices, family, None)
        step = self._solution(family, matrices)
        # The gradient may promise a gain that the objective does not have, and at a local optimum of the one a swap
        # may still lower the other: each kind of step is tried only where those before it failed.
        if family not in self.linear:
            return (
                self._checked(step, floor)
                or self._swaps(family, matrices, floor)
                or self._flips(family, matrices, floor)
            )
        if step.gain <= floor:
            return None
        # Small beside what was added up to find it, the gain may be rounding: it is computed again from the numbers
        # that move, whose differences have all their digits.
        if not self.similarities.is_beyond_rounding(step.gain, matrices):
            exact = (gain_of_units(self.problem, unit, self.flat, new) for unit, new in step.flat.items())
            step = step._replace(gain=self.timed("objective", lambda: sum(exact)))
        return step if step.gain > floor else None

    def _evidence(self, family: str, among: set[str]) -> float:
        return sum(self.similarities.evidence(unit, among) for unit in self.units[family])

    def _matrices(self, family: str, among: set[str] | None) -> dict[str, np.ndarray]:
        return {unit: self.similarities.matrix(unit, self.flat, among) for unit in self.units[family]}

    def _solution(self, family: str, matrices: dict[str, np.ndarray]) -> _Step:
        """The best permutations of a family by these similarities, and twice what they gain."""
        self.solved += 1
        size = self.structure.members[family].size
        if size not in self.work:
            self.work[size] = np.empty((2, size, size), self.problem.dtype)
        present = {name: self.structure.own(self.perms, name) for name in self.structure.families[family]}
        # The assignment sees each unit with the better of its signs, and need not know that there are two.
        signed = self.structure.signed
        worth = {unit: better(matrix) for unit, matrix in matrices.items()} if signed else matrices
        arguments = self.structure, family, worth, present, self.potentials, self.work[size]
        own = self.timed("assignment", solve_family, *arguments)
        flat = self._flat(family, own)
        if signed:
            flat = {unit: choose(matrices[unit], perm) for unit, perm in flat.items() if unit in matrices}
        return self._as_step(family, own, matrices, flat)

    def _flat(self, family: str, own: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The permutations of all units of a family, without signs."""
        if len(own) == 1:
            return dict(own)
        return {name: self.structure.flat_of(unit, own) for name, unit in self.structure.of_family(family).items()}

    def _as_step(
        self,
        family: str,
        own: dict[str, np.ndarray],
        matrices: dict[str, np.ndarray],
        known: Mapping[str, np.ndarray] | None = None,
    ) -> _Step:
        """The step to these permutations; but for units of which `known` says more, each keeps its sign."""
        if known is not None and not self.structure.signed:
            flat = dict(known)
        else:
            flat = self._flat(family, own)
            for unit in flat:
                if known is not None and unit in known:
                    flat[unit] = known[unit]
                elif unit in self.structure.signed:
                    flat[unit] = carry(self.flat[unit], flat[unit])
        gain = 0.0
        for unit, matrix in matrices.items():
            rows = in_order(len(matrix))
            # |t − s|² is |t|² + |s|² − 2⟨t, s⟩, and a permutation leaves the squares alone.
            gained = matrix[rows, flat[unit]] - matrix[rows, self.flat[unit]]
            gain += 2.0 * float(np.add.reduce(gained, dtype=np.float64))
        return _Step(own, flat, gain)

    def _checked(self, step: _Step, floor: float) -> _Step | None:
        """A step whose gain is taken from the objective itself."""
        # The objective reads every weight; that nothing has moved is known without it.
        if all((new == self.flat[unit]).all() for unit, new in step.flat.items()):
            return None
        before = self.timed("objective", objective_of_flat, self.problem, self.flat)
        after = self.timed("objective", objective_of_flat, self.problem, {**self.flat, **step.flat})
        return step._replace(gain=before - after) if before - after > floor else None

    def _swaps(self, family: str, matrices: dict[str, np.ndarray], floor: float) -> _Step | None:
        """As many disjoint swaps at once as still lower the objective: all, half of them, … one.

        Of a family with inner members, the units of one member are swapped with all others held, one after another.
        """
        for member in self.structure.families[family]:
            for at in np.ndindex(self.structure.own(self.perms, member).shape[:-1]):
                step = self._swaps_of(family, member, at, matrices, floor)
                if step is not None:
                    return step
        return None

    def _swaps_of(
        self, family: str, member: str, at: tuple[int, ...], matrices: dict[str, np.ndarray], floor: float
    ) -> _Step | None:
        own = {name: self.structure.own(self.perms, name) for name in self.structure.families[family]}
        if len(own) > 1:
            return self._first_swap(family, own, member, at, matrices, floor)
        pairs = disjoint_swaps(swap_gains(self.problem, family, self.flat, matrices[family]))
        while len(pairs):
            perm = own[member].copy()
            perm[pairs] = perm[pairs[:, ::-1]]
            step = self._checked(self._as_step(family, {member: perm}, matrices), floor)
            if step is not None:
                return step
            # Each gain was that of a swap alone. Together they meet in the tensor that has both units on two axes;
            # fewer meet less, and halving takes a logarithm of checks.
            pairs = pairs[: len(pairs) // 2]
        return None

    def _first_swap(
        self,
        family: str,
        own: dict[str, np.ndarray],
        member: str,
        at: tuple[int, ...],
        matrices: dict[str, np.ndarray],
        floor: float,
    ) -> _Step | None:
        """The first swap of two units that lowers the objective; the similarity's gradient says which to try."""
        size = self.structure.members[member].size
        tries = []
        for a in range(size):
            for b in range(a):
                perm = own[member].copy()
                perm[(*at, [a, b])] = perm[(*at, [b, a])]
                step = self._as_step(family, {**own, member: perm}, matrices)
                tries.append((step.gain, a, b, step))
        # Every check reads all weights: n of them are afforded, of n² / 2 swaps.
        for _, _, _, step in sorted(tries, key=lambda entry: -entry[0])[:size]:
            checked = self._checked(step, floor)
            if checked is not None:
                return checked
        return None

    def _flips(self, family: str, matrices: dict[str, np.ndarray], floor: float) -> _Step | None:
        """As many flips at once as still lower the objective: all that seem to, half of them, … one."""
        gains = [
            (gain, unit, place)
            for unit in matrices
            if unit in self.structure.signed
            for place, gain in enumerate(flip_gains(self.problem, unit, self.flat, matrices[unit]))
            if gain > 0
        ]
        gains.sort(reverse=True)
        own = {name: self.structure.own(self.perms, name) for name in self.structure.families[family]}
        while gains:
            flat = {unit: self.flat[unit].copy() for unit in matrices}
            for _, unit, place in gains:
                flat[unit][place] = twin_of(flat[unit][place], len(flat[unit]))
            step = self._checked(self._as_step(family, own, matrices, flat), floor)
            if step is not None:
                return step
            # As with swaps: those that share an entry do not add up.
            gains = gains[: len(gains) // 2]
        return None

    def timed(
        self, name: str, function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Calls a function on the clock of its kind."""
        start = time.perf_counter()
        result = function(*args, **kwargs)
        self.seconds[name] += time.perf_counter() - start
        return result


def swap_gains(problem: Problem, unit: str, flat: FlatPerms, similarity: np.ndarray) -> np.ndarray:
    """Returns how much each swap of two places raises the similarity; exact up to two axes of a tensor."""
    placed = similarity[:, flat[unit]].astype(np.float64)
    kept = np.diag(placed)
    gains = placed + placed.T - kept[:, None] - kept[None, :]
    for pair in problem.features:
        places = pair.layout.places(unit)
        if len(places) == 2:
            for t, s in zip(pair.target, pair.source, strict=True):
                moved = gather(s, pair.layout, flat)
                gains += _corners(*(np.moveaxis(widened(array), places, (0, 1)) for array in (t, moved)))
    return gains


def flip_gains(problem: Problem, unit: str, flat: FlatPerms, similarity: np.ndarray) -> np.ndarray:
    """Returns how much the twin in each place raises the similarity; exact up to two axes of a tensor."""
    rows, now = np.arange(len(similarity)), flat[unit]
    twins = twin_of(now, len(now))
    gains = similarity[rows, twins].astype(np.float64) - similarity[rows, now]
    for pair in problem.features:
        places = pair.layout.places(unit)
        if len(places) == 2:
            others = {name: perm for name, perm in flat.items() if name != unit}
            for t, s in zip(pair.target, pair.source, strict=True):
                moved = gather(s, pair.layout, others, frozenset((unit,)))
                t, moved = (np.moveaxis(widened(array), places, (0, 1)).astype(np.float64) for array in (t, moved))
                # A flip turns an entry on the diagonal twice, which the similarity, one axis at a time, counts as two
                # changes.
                corner = moved[twins, twins] - moved[twins, now] - moved[now, twins] + moved[now, now]
                gains += (t[rows, rows] * corner).reshape(len(rows), -1).sum(1)
    return gains


def disjoint_swaps(gains: np.ndarray) -> np.ndarray:
    """Returns swaps with a positive gain that share no unit, the most promising first, as rows (a, b)."""
    # Each pair once. A stable order, so that equal gains give the same swaps everywhere.
    upper = np.triu(gains, 1)
    a, b = np.unravel_index(np.argsort(-upper, axis=None, kind="stable")[: int((upper > 0).sum())], upper.shape)
    free, chosen = np.ones(len(gains), bool), []
    for pair in zip(a.tolist(), b.tolist(), strict=True):
        if free[pair[0]] and free[pair[1]]:
            free[list(pair)] = False
            chosen.append(pair)
    return np.array(chosen, np.int64).reshape(-1, 2)


def _corners(target: np.ndarray, source: np.ndarray) -> np.ndarray:
    """What the linear gain counts wrongly where both indices of an entry are among the swapped two."""
    size = target.shape[0]
    t, s = (array.reshape(size, size, -1).astype(np.float64) for array in (target, source))
    tt, ss = t.transpose(1, 0, 2), s.transpose(1, 0, 2)
    td, sd = t[np.arange(size), np.arange(size)], s[np.arange(size), np.arange(size)]
    ta, tb, sa, sb = td[:, None], td[None, :], sd[:, None], sd[None, :]
    rows = _dot(ta - tt, ss - sa) + _dot(t - tb, sb - s)  # Σ_j over j in {a, b} of (t_aj − t_bj)(s_bj − s_aj)
    columns = _dot(ta - t, s - sa) + _dot(tt - tb, sb - ss)
    return _dot(ta - tb, sb - sa) + _dot(t - tt, ss - s) - rows - columns


def _dot(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return (first * second).sum(-1)


def _neighbours(similarities: Similarities) -> dict[str, set[str]]:
    """Families whose step depends on this one; one with several axes of a tensor, or with members side by side on one
    axis, is its own neighbour."""
    units = similarities.problem.structure.units
    result: dict[str, set[str]] = {family: set() for family in similarities.problem.structure.families}
    for name, kinds in similarities.kinds.items():
        family = units[name].family
        result[family] |= {units[other].family for other in kinds.coupled}
        for pair in map(similarities.problem.features.__getitem__, kinds.general):
            rest = [units[other].family for other in pair.layout.present]
            # Once: a family that stands on two axes stays in the rest, and so becomes its own neighbour.
            rest.remove(family)
            result[family] |= set(rest)
        # A name with a plus is of units of several members on one axis: each sees the others as fixed, so that one
        # step need not be the last.
        if "+" in name:
            result[family].add(family)
    return result
