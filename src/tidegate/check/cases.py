"""Sizes and CTAs in cases: what is known of them when a run begins, and how a case is split that is too coarse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import inf, prod

from tidegate.check.control import Env, Interval, Place, consistent, exactly
from tidegate.check.linear import Atom, Index, Reader, Term
from tidegate.check.survey import MAX_DISTANCE, Survey
from tidegate.ir import tir

MAX_CASES = 1024
"""Combinations of small and large values of the sizes."""

Known = Mapping[Atom, Interval]


class Exhausted(Exception):
    """A bound of the checker was hit; the text names it."""


@dataclass(frozen=True)
class Case:
    """One combination: atoms exact or at least a bound, grid indices with their distance to the end."""

    atoms: Known
    grid: Mapping[str, Place]


class Cases:
    """The cases of a kernel. ``indices`` fixes grid indices; ``far``: conditions that look farther than so many trips
    from the ends of loops are refused."""

    def __init__(
        self, kernel: tir.Kernel, reader: Reader, survey: Survey, indices: Mapping[str, int], far: float
    ) -> None:
        self.kernel = kernel
        self.reader = reader
        self.survey = survey
        self.indices = indices
        self.far = far

    def combinations(self) -> list[Case]:
        """All combinations that a check has to replay; raises :class:`Exhausted` when there are too many."""
        self._near(self.survey.atoms)
        places = [list(self._places(axis)) for axis in self.survey.used_grid]
        # Exact small values let conditions before a loop agree with its trip count. Without them loops still try every
        # small count, for each state: coarser, but no less sound.
        for times, more in ((2, 2) if self.kernel.scalars else (3, 2), (1, 1)):
            values = []
            for atom in self.survey.atoms:
                small = times * self.survey.distance.get(atom, 0) + more
                values.append([*map(exactly, range(small)), Interval(small, inf)])
            count = prod(len(v) for v in values) * prod(len(p) for p in places)
            if count <= MAX_CASES:
                break
        else:
            raise Exhausted(f"{count} combinations of unknown sizes, more than {MAX_CASES}")
        names = [axis.name for axis in self.survey.used_grid]
        all_cases = [
            Case(dict(zip(self.survey.atoms, some, strict=True)), dict(zip(names, where, strict=True)))
            for some in product(*values)
            for where in product(*places)
        ]
        return [case for case in all_cases if self.possible(case)]

    def start(self) -> list[Case]:
        """Every size and every grid index is anything at all."""
        self._near(t for t in self.survey.distance if isinstance(t, Index) and t.name in self.survey.ends)
        atoms = {a: Interval(self.reader.step(a) if a in self.survey.running else 0, inf) for a in self.survey.atoms}
        case = Case(atoms, {axis.name: self._anywhere(axis) for axis in self.survey.used_grid})
        return [case] if self.possible(case) else []

    def closer(self, case: Case) -> list[Case]:
        """The case in parts of which each knows where one more grid index is: near its ends or between them."""
        open_ = [axis for axis in self.survey.used_grid if case.grid[axis.name] == self._anywhere(axis)]
        for axis in open_:
            parts = [replace(case, grid={**case.grid, axis.name: place}) for place in self._places(axis)]
            if len(parts) > 1:
                return parts
        return []

    def split(self, known: Known, candidates: Iterable[Atom]) -> list[Known]:
        """The size of which least is known has its smallest value, or a larger one; empty if enough is known of all."""
        vague = [a for a in candidates if known[a].exact is None and known[a].low < self._enough(a)]
        if not vague:
            return []
        atom = min(vague, key=lambda a: known[a].low)
        low, high = int(known[atom].low), known[atom].high
        parts = (Interval(low + self.reader.step(atom), high), exactly(low))
        return [finer for part in parts if self._consistent(finer := {**known, atom: part})]

    def possible(self, case: Case) -> bool:
        """There is a CTA, every grid index lies inside its extent, which an atom may have fixed, and every size has a
        value that fits all that is said of it."""
        env = Env(case.atoms, case.grid, self.survey.period)
        if not self._consistent(case.atoms):
            return False
        if any(env.bounds(self.reader.linear(axis.extent)).high < 1 for axis in self.kernel.grid):
            return False
        for place in case.grid.values():
            size, value, left = env.bounds(place.end), place.value, place.left
            if size.high < value.low + left.low or size.low > value.high + left.high:
                return False
        return True

    def _near(self, terms: Iterable[Term]) -> None:
        """Conditions look at what is near the ends of loops."""
        farthest = max((self.survey.distance.get(t, 0) for t in terms), default=0)
        if farthest > self.far:
            far = f"{farthest} iterations from both ends of a loop, or compares a size with as much"
            raise Exhausted(f"a condition looks {far}; more than {self.far} are not replayed")

    def _places(self, axis: tir.GridAxis) -> Iterable[Place]:
        end = self.reader.linear(axis.extent)
        if axis.name in self.indices:
            at = self.indices[axis.name]
            left = Interval(1, inf) if end.terms else exactly(end.const - at)
            yield Place(exactly(at), left, at % self.survey.period, end)
            return
        low, far = self.survey.edges(axis.name)
        values = [*map(exactly, range(low)), Interval(low, inf)]
        lefts = (
            [*map(exactly, range(1, far)), Interval(far, inf)] if self.survey.from_the_end(axis) else [Interval(1, inf)]
        )
        for value, left in product(values, lefts):
            if not end.terms:  # each tells the other
                value &= Interval(end.const - left.high, end.const - left.low)
                left &= Interval(end.const - value.high, end.const - value.low)
            if value.low <= value.high:
                residues = range(self.survey.period) if value.exact is None else [value.exact % self.survey.period]
                yield from (Place(value, left, residue, end) for residue in residues)

    def _anywhere(self, axis: tir.GridAxis) -> Place:
        """Any place along an axis, unless the run is that of one CTA."""
        if axis.name in self.indices:
            return next(iter(self._places(axis)))
        end = self.reader.linear(axis.extent)
        most = inf if end.terms else end.const
        return Place(Interval(0, most - 1), Interval(1, most), None if self.survey.period > 1 else 0, end)

    def _consistent(self, known: Known) -> bool:
        """Sizes may have these values in a run that has a CTA."""
        return consistent({**dict.fromkeys(self.survey.running, Interval(1, inf)), **known}, self.reader.multiples)

    def _enough(self, atom: Atom) -> int:
        """From this value on a size need not be told from larger ones."""
        return max(3 * min(self.survey.distance.get(atom, 0), MAX_DISTANCE) + 2, self.reader.step(atom))
