"""Kernels with roles: several groups of warps with program counters of their own, for all trip counts at once.

One schedule decides, because the order of events does not depend on timing (docs/checking.md, "Roles"): an actor runs
until it has to wait or begins another iteration, then the one that is behind. Loop indices are exact. A size that is
unknown and large is chosen lazily: as long as no condition depends on it, it is only known to be at least so much; a
condition that does splits the run. States that differ in the position within a loop alone are one state: indices are
compared relative to each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from tidegate.check.cases import Case
from tidegate.check.control import ANY, Env, Interval, Place, Undecided, exactly, takes
from tidegate.check.explore import Explorer
from tidegate.check.knowledge import NOTHING, Spot
from tidegate.check.linear import (
    Atom,
    Extreme,
    Formula,
    Index,
    Linear,
    Mod,
    Opaque,
    Quotient,
    Term,
    Test,
    atoms,
    expression,
    single,
)
from tidegate.check.sites import Group, everyone, groups
from tidegate.check.state import At, Fault, Log, State
from tidegate.ir import tir
from tidegate.ir.text import print_stmt

ARRIVALS = (tir.BarrierArrive, tir.BarrierExpect, tir.CpArrive, tir.BarArrive)

MAX_SPLIT = 64
"""Values into which one condition may split an unknown size."""

LONG = 96
"""A loop with more iterations than this leaves out whole cycles."""

LoopId = tuple[Term, int]
"""The term at which a loop ends, and which it is of the loops of a block that end there."""

Path = tuple[str | int, ...]
"""Where a loop is: the group that executes it, and per block around the number of statements up to it."""

Outside = tuple[tuple[LoopId, bool, int], ...]
"""The loops around: whether each ends by a choice, and its index."""

ChoiceId = tuple[LoopId, Outside]
"""The loop that ends by a choice, and where the block that it is in is executed."""


@dataclass(frozen=True)
class Choice:
    """What is known of a size within one execution of the loops that end by it: at least ``low``, or all. ``long``:
    whether it was known before, and is large, so that whole cycles are left out."""

    low: int
    exact: int | None = None
    long: bool = False
    done: frozenset[int] = frozenset()  # actors that have left their loop


@dataclass(frozen=True)
class Level:
    """A block that an actor is in: its statements, the next one, and for a loop what it is, index, end and choice."""

    body: tuple[tir.Stmt, ...]
    at: int = 0
    loop: tir.For | None = None
    identity: LoopId | None = None
    index: int = 0
    start: int = 0
    end: Linear = field(default_factory=lambda: Linear(0))
    choice: ChoiceId | None = None

    def next(self) -> Level:
        return replace(self, at=self.at + 1)


@dataclass(frozen=True)
class Actor:
    """A group with its program counter: nested blocks, outermost first; none when it has finished."""

    group: Group
    levels: tuple[Level, ...]


@dataclass
class Joint:
    """All actors, whose turn it is, which ones wait since the last step of another, and the state that they share."""

    actors: list[Actor]
    turn: int
    state: State
    choices: dict[ChoiceId, Choice]
    blocked: frozenset[int] = frozenset()

    def copy(self) -> Joint:
        return Joint(list(self.actors), self.turn, self.state.copy(), dict(self.choices), self.blocked)

    def pick(self) -> None:
        """The turn goes to the actor that is behind in its loops, of those that may go on."""
        able = [n for n, actor in enumerate(self.actors) if actor.levels and n not in self.blocked]
        if able:
            self.turn = min(able, key=lambda n: (self._progress(n), n))

    def _progress(self, number: int) -> tuple[int, ...]:
        return tuple(v for x in self.actors[number].levels if x.choice is not None for v in (x.choice[0][1], x.index))

    @property
    def stuck(self) -> bool:
        return all(n in self.blocked for n, actor in enumerate(self.actors) if actor.levels)


class Split(Exception):
    """A condition depends on a size that is not yet known: its values one by one, or at least ``low``."""

    def __init__(self, choice: ChoiceId, low: int) -> None:
        super().__init__()
        self.choice = choice
        self.low = low


class Roles(Explorer):
    """Like :class:`Explorer`, for kernels with roles."""

    def every_case(self) -> Iterator[Fault]:
        """Replays all sizes and CTAs; raises Fault, Undecided or Exhausted."""
        for case in self.cases.combinations():
            self.run(case)
        yield from ()

    def run(self, case: Case) -> int:
        if self.kernel.scalars:
            raise Undecided("scalars in a kernel with roles are not replayed; try: a size or a constant instead")
        env = Env(case.atoms, case.grid, self.period)
        for name, value in self.indices.items():
            if name not in env.places:
                env = env.at(name, Place(exactly(value), ANY, value % self.period, Linear(0)))
        states = [self.machine.start()]
        parts = list(segments(self.kernel))
        for number, segment in enumerate(parts):
            later = [s for part in parts[number + 1 :] for body in part.values() for s in tir.walk(body)]
            try:
                states = self._segment(segment, states, env)
            except Fault as fault:
                if fault.kind == "deadlock" and any(isinstance(s, ARRIVALS) for s in later):
                    why = "some warps wait for what statements after the roles may bring; try: to arrive in a role"
                    raise Undecided(why) from fault
                raise
        for state in states:
            self.machine.finish(state)
        return len(states)

    def _segment(self, bodies: Mapping[str, tuple[tir.Stmt, ...]], states: list[State], env: Env) -> list[State]:
        """Runs the actors of a segment to their ends, from each of the states."""
        table = groups(self.kernel)
        self.ids: dict[Path, LoopId] = {}
        self.names = {s.index for s in tir.walk(self.kernel.body) if isinstance(s, tir.For)}
        for name, body in bodies.items():
            self._number(body, (name,), env, Counter())
        self.loops = {name: frozenset(loop for path, loop in self.ids.items() if path[0] == name) for name in bodies}
        final: dict[bytes, State] = {}
        for start in states:
            actors = [Actor(table[name], (Level(body),)) for name, body in bodies.items()]
            work = [Joint(actors, 0, start, {})]
            seen: set[tuple[object, ...]] = set()
            while work:
                joint = work.pop()
                try:
                    end = self._until_end(joint, env, work, seen)
                except Fault as fault:
                    fault.spot = Spot(self._told(joint, env), NOTHING)
                    raise
                if end is not None:
                    final.setdefault(self.machine.key(end), end)
        return list(final.values())

    def _until_end(self, joint: Joint, env: Env, work: list[Joint], seen: set[tuple[object, ...]]) -> State | None:
        """Runs one branch; others go to ``work``. None when it reaches a state that was seen."""
        skips: dict[tuple[object, ...], int] = {}
        while any(actor.levels for actor in joint.actors):
            try:
                looped = self._move(joint, env)
            except Split as split:
                known = joint.choices[split.choice]
                if split.low - known.low > MAX_SPLIT:
                    raise Undecided(f"a condition looks {split.low - known.low} iterations ahead") from None
                for value in range(known.low, split.low):
                    other = joint.copy()
                    other.choices[split.choice] = replace(known, low=value, exact=value)
                    work.append(other)
                joint.choices[split.choice] = replace(known, low=split.low)
                continue
            if looped is not None:
                joint.pick()
            if looped is not None and looped == self._leader(joint):
                level = joint.actors[looped].levels[-1]
                assert level.choice is not None
                if joint.choices[level.choice].long:
                    self._skip(joint, level, skips)
                    continue
                key = self._key(joint)
                if key in seen:
                    return None
                seen.add(key)
            if joint.stuck and any(actor.levels for actor in joint.actors):
                raise self._deadlock(joint, env)
        return joint.state

    def _told(self, joint: Joint, env: Env) -> Env:
        """The environment with what is known of sizes by choices."""
        told = {
            loop[0]: Interval(known.low, inf if known.exact is None else known.exact)
            for (loop, _), known in joint.choices.items()
            if isinstance(loop[0], Atom) and loop[0] in env.atoms
        }
        return replace(env, atoms={**env.atoms, **told})

    # ------------------------------------------------------------------------------------------ steps

    def _move(self, joint: Joint, env: Env) -> int | None:
        """One step of the actor whose turn it is; its number if it has gone round a loop that ends by a choice."""
        number = joint.turn
        actor = joint.actors[number]
        if not actor.levels:
            joint.pick()
            return None
        *outer, level = actor.levels
        if level.at == len(level.body):
            return self._end_of_block(joint, number, env)
        stmt = level.body[level.at]
        after = (*outer, level.next())
        if isinstance(stmt, tir.For):
            self._enter(joint, number, stmt, after, env)
        elif isinstance(stmt, tir.If):
            holds = self._truth_of(self._formula(stmt.condition), joint, number, env, str(stmt.condition))
            joint.actors[number] = replace(actor, levels=(*after, Level(stmt.body)) if holds else after)
        else:
            self._execute(joint, number, stmt, after, env)
            return None
        return None

    def _truth_of(self, formula: Formula, joint: Joint, number: int, env: Env, text: str) -> bool:
        if isinstance(formula, Test):
            return self._holds(formula, joint, number, env, text)
        truths = (self._truth_of(part, joint, number, env, text) for part in formula.parts)
        return all(truths) if formula.op == "&&" else any(truths)

    def _execute(self, joint: Joint, number: int, stmt: tir.Stmt, after: tuple[Level, ...], env: Env) -> None:
        actor = joint.actors[number]
        at = self._at(actor, env)
        if self.observe is not None:
            self.observe(joint.state, NOTHING, stmt, self._env(actor, env), actor.group)
        self._count(1)
        if self.machine.step(joint.state, stmt, at, actor.group):
            joint.actors[number] = Actor(actor.group, after)
            joint.blocked = frozenset()
            return
        if isinstance(stmt, tir.BarSync) and len(stmt.warps) < actor.group.count:
            why = f"holds up some warps of {actor.group} only, and they are replayed together"
            raise Undecided(f"{print_stmt(stmt)} {why}; try: a barrier of all its warps")
        joint.blocked |= {number}
        joint.pick()

    def _at(self, actor: Actor, env: Env) -> At:
        grid = tuple((name, place.value.exact) for name, place in env.places.items())
        return (*grid, *((str(x.loop.index), x.index) for x in actor.levels if x.loop is not None))

    def _env(self, actor: Actor, env: Env) -> Env:
        for x in actor.levels:
            if x.loop is not None:
                env = env.at(x.loop.index, Place(exactly(x.index), ANY, x.index % self.period, Linear(0)))
        return env

    # ------------------------------------------------------------------------------------------ loops

    def _enter(self, joint: Joint, number: int, loop: tir.For, after: tuple[Level, ...], env: Env) -> None:
        actor = joint.actors[number]
        start = self._value(self.reader.linear(loop.start), actor, env)
        end = self._value(self.reader.linear(loop.stop), actor, env)
        if start.terms:
            raise Undecided(f"the loop over {loop.index} begins at {loop.start}, which has no single value")
        choice: ChoiceId | None = None
        identity = self.ids[actor.group.name, *(x.at for x in after)]
        outside = tuple((x.identity, x.choice is not None, x.index) for x in actor.levels if x.identity is not None)
        term = _only(end)
        if isinstance(term, (Atom, Opaque, Quotient)):
            if loop.index in self.survey.absolute:
                where = f" (line {loop.line})" if loop.line else ""
                what = f"compares {loop.index}{where} with more than constants and the end of its own loop"
                raise Undecided(f"a condition or an end of a loop in a kernel with roles {what}")
            choice = identity, outside
            self.open = True
            low = int(env.atoms[term].low) if isinstance(term, Atom) and term in env.atoms else 0
            joint.choices.setdefault(choice, Choice(low))
        elif end.terms:
            raise Undecided(f"the end of the loop over {loop.index}, {loop.stop}, is not decided")
        elif end.const - start.const > LONG and not self.exact and loop.index not in self.survey.absolute:
            choice = identity, outside
            if joint.choices.setdefault(choice, Choice(end.const, end.const, long=True)).exact != end.const:
                raise Undecided(f"the loop over {loop.index} of some role ends elsewhere than that of another")
        level = Level(loop.body, 0, loop, identity, start.const, start.const, end, choice)
        self._round(joint, number, after, level, env)

    def _number(self, body: tuple[tir.Stmt, ...], path: Path, env: Env, seen: Counter[Term]) -> None:
        """Identifies the loops in a body. ``seen``: those before it in its block, conditional parts included."""
        for at, stmt in enumerate(body, 1):
            if isinstance(stmt, tir.If):
                self._number(stmt.body, (*path, at), env, seen)
            elif isinstance(stmt, tir.For):
                end = self._value(self.reader.linear(stmt.stop), Actor(everyone(self.kernel), ()), env)
                term = _only(end)
                if term is None or any(a.name in self.names for a in atoms(end) if isinstance(a, Index)):
                    term = Atom(expression(end))  # what it is, if not how many, differs from trip to trip around
                self.ids[*path, at] = term, seen[term]
                seen[term] += 1
                self._number(stmt.body, (*path, at), env, Counter())

    def _round(self, joint: Joint, number: int, outer: tuple[Level, ...], level: Level, env: Env) -> bool:
        """Begins the iteration at ``level.index`` if there is one."""
        rest = level.end.plus(Linear(-level.index - 1))
        here = replace(joint.actors[number], levels=(*outer, level))
        goes_on = self._holds(Test(">=", rest), joint, number, env, "", here)
        joint.actors[number] = here if goes_on else replace(here, levels=outer)
        if not goes_on and level.choice is not None:
            self._leave(joint, number, level.choice)
        return goes_on

    def _leave(self, joint: Joint, number: int, choice: ChoiceId) -> None:
        """The value of a size is forgotten once all actors have left the loops that end by it."""
        known = joint.choices[choice]
        done = known.done | {number}
        sharing = {n for n, a in enumerate(joint.actors) if choice[0] in self.loops[a.group.name]}
        if sharing <= done:
            del joint.choices[choice]
        else:
            joint.choices[choice] = replace(known, done=done)

    def _end_of_block(self, joint: Joint, number: int, env: Env) -> int | None:
        *outer, level = joint.actors[number].levels
        if level.loop is None:
            joint.actors[number] = replace(joint.actors[number], levels=tuple(outer))
            return None
        self._count(1)
        again = replace(level, at=0, index=level.index + 1)
        goes_on = self._round(joint, number, tuple(outer), again, env)
        return number if goes_on and level.choice is not None else None

    # ------------------------------------------------------------------------------------------ values

    def _value(self, form: Linear, actor: Actor, env: Env) -> Linear:
        """The form with indices and known sizes replaced by their values."""
        total = Linear(form.const)
        for term, c in form.terms:
            total = total.plus(self._term(term, actor, env), c)
        return total

    def _term(self, term: Term, actor: Actor, env: Env) -> Linear:
        if isinstance(term, Index):
            for x in reversed(actor.levels):
                if x.loop is not None and x.loop.index == term.name:
                    return Linear(x.index)
            exact = env.places[term.name].value.exact if term.name in env.places else None
            return single(term) if exact is None else Linear(exact)
        if isinstance(term, Atom):
            exact = env.atoms.get(term, ANY).exact
            return single(term) if exact is None else Linear(exact)
        self._comparable(term, actor)
        if isinstance(term, Mod):
            inner = self._value(term.value, actor, env)
            return single(Mod(inner, term.modulus)) if inner.terms else Linear(inner.const % term.modulus)
        if isinstance(term, Quotient):
            inner = self._value(term.value, actor, env)
            return single(Quotient(inner, term.divisor)) if inner.terms else Linear(inner.const // term.divisor)
        if isinstance(term, Extreme):
            a, b = self._value(term.a, actor, env), self._value(term.b, actor, env)
            if a.terms or b.terms:
                return self._env(actor, env).resolve(single(Extreme(term.op, a, b)))
            return Linear(min(a.const, b.const) if term.op == "min" else max(a.const, b.const))
        found = self._env(actor, env).resolve(single(term))
        return found

    def _comparable(self, term: Term, actor: Actor) -> None:
        """States whose indices differ are one state (:meth:`_key`): nothing may look at such an index but in a sum, by
        its remainder, or in a minimum or maximum."""
        plain = isinstance(term, Mod) and all(isinstance(inner, (Atom, Index)) for inner, _ in term.value.terms)
        if plain or isinstance(term, (Atom, Extreme)):
            return
        loops = (x.loop for x in actor.levels if x.loop is not None and x.choice is not None)
        moving: dict[str, tir.For] = {loop.index: loop for loop in loops}
        for inner in atoms(single(term)):
            if isinstance(inner, Index) and inner.name in moving:
                where = f" (line {moving[inner.name].line})" if moving[inner.name].line else ""
                what = f"{single(term)}, which changes in the loop over {inner.name}{where}"
                raise Undecided(f"a condition or an end of a loop in a kernel with roles depends on {what}")

    def _holds(self, test: Test, joint: Joint, number: int, env: Env, text: str, actor: Actor | None = None) -> bool:
        """The truth of a test for an actor; raises Split when it depends on a size that is still open."""
        actor = actor or joint.actors[number]
        form = self._value(test.value, actor, env)
        if not form.terms:
            return _truth(test.op, form.const)
        choice = self._choice_of(form, test.value, actor)
        if choice is None:
            here, mine = self._env(actor, env), Test(test.op, form)
            truth = here.holds(mine)
            if truth is None:
                raise here.undecided([mine], text)
            return truth
        c, known = form.terms[0][1], joint.choices[choice]
        if known.exact is not None:
            return _truth(test.op, form.const + c * known.exact)
        return self._open(Test(test.op, form), c, choice, known.low)

    def _choice_of(self, form: Linear, asked: Linear, actor: Actor) -> ChoiceId | None:
        """By which choice to take the one size in a form: that of the loop whose index was ``asked`` for with it, or
        else the innermost."""
        if len(form.terms) != 1:
            return None
        own = [x for x in reversed(actor.levels) if x.choice is not None and _only(x.end) == form.terms[0][0]]
        named = [x for x in own if x.loop is not None and asked.coefficient(Index(x.loop.index))]
        return next((x.choice for x in (*named, *own)), None)

    def _open(self, test: Test, c: int, choice: ChoiceId, low: int) -> bool:
        """A test on a size that is at least ``low``: decided, or the run splits."""
        const = test.value.const
        if test.op == ">=":
            edge = -(const // c) if c > 0 else const // -c + 1  # from here on the truth stays as it is
            if low >= edge:
                return c > 0
            raise Split(choice, edge)
        zero = -const // c if const % c == 0 else low - 1
        if zero < low:
            return test.op == "!="
        raise Split(choice, zero + 1)

    # ------------------------------------------------------------------------------------------ recurrence

    def _leader(self, joint: Joint) -> int | None:
        """The actor at whose iterations states are compared: the first that is in a loop that ends by a choice."""
        inside = (n for n, a in enumerate(joint.actors) if any(x.choice is not None for x in a.levels))
        return next(inside, None)

    def _references(self, joint: Joint) -> dict[ChoiceId, int]:
        """Choices whose loops are in their middle in all actors that share them, with the smallest index there."""
        found: dict[ChoiceId, int] = {}
        for choice, known in joint.choices.items():
            sharing = {n for n, a in enumerate(joint.actors) if choice[0] in self.loops[a.group.name]}
            inside = [(n, x) for n in sharing for x in joint.actors[n].levels if x.choice == choice]
            if not inside or {n for n, _ in inside} | known.done != sharing:
                continue
            if all(x.loop is not None and x.index - x.start >= self.survey.edges(x.loop.index)[0] for _, x in inside):
                found[choice] = min(x.index for _, x in inside)
        return found

    def _key(self, joint: Joint, but: ChoiceId | None = None) -> tuple[object, ...]:
        """Equal for joint states with the same futures, up to a shift of the loops in their middle."""
        reference = self._references(joint)

        def outer(choice: ChoiceId) -> tuple[object, ...]:
            places: list[object] = []
            for depth, (around, by_choice, index) in enumerate(choice[1]):
                full = (around, choice[1][:depth]) if by_choice else None
                places.append((str(around), index - reference[full] if full in reference else ("a", index)))
            return (*map(str, choice[0]), *places)

        def place(x: Level) -> tuple[object, ...]:
            if x.choice in reference:
                return (x.at, x.index - reference[x.choice], x.index % self.period)
            return (x.at, "a", x.index)

        actors = tuple(tuple(place(x) for x in a.levels) for a in joint.actors)
        choices = []
        for choice, known in joint.choices.items():
            base = reference.get(choice, 0)
            value = None if choice == but else (known.low - base, known.exact is not None)
            choices.append((outer(choice), choice in reference, value, known.done))
        choices.sort(key=repr)
        return (actors, tuple(choices), self.machine.key(joint.state))

    def _skip(self, joint: Joint, level: Level, skips: dict[tuple[object, ...], int]) -> None:
        """In a long loop with known end: leaves out whole cycles once a state recurs in the middle."""
        assert level.choice is not None
        assert level.loop is not None
        if level.choice not in self._references(joint):
            return
        # What recurs in another execution of the loop, with other indices around, is no cycle of this one.
        key = (level.choice, *self._key(joint, but=level.choice))
        before = skips.setdefault(key, level.index)
        exact = joint.choices[level.choice].exact
        assert exact is not None
        period = level.index - before
        if period <= 0 or period % self.period:
            return
        inside = [x for a in joint.actors for x in a.levels if x.choice == level.choice]
        ahead = max(x.index for x in inside)
        tail = max(self.survey.edges(x.loop.index)[1] for x in inside if x.loop is not None)
        cycles = (exact - tail - ahead - 1) // period - 1
        if cycles > 0:
            shift = cycles * period
            joint.actors = [
                replace(a, levels=tuple(
                    replace(x, index=x.index + shift) if x.choice == level.choice else x for x in a.levels
                )) for a in joint.actors
            ]  # fmt: skip
            joint.state.log = Log(level.loop, (), joint.state.now, joint.state.log, shift)
            skips.clear()

    # ------------------------------------------------------------------------------------------ deadlock

    def _deadlock(self, joint: Joint, env: Env) -> Fault:
        waiting = {}
        for actor in joint.actors:
            if actor.levels:
                level = actor.levels[-1]
                waiting[actor.group.name] = Log(
                    level.body[level.at], self._at(actor, env), joint.state.now, None, 0, actor.group.name
                )
        first = next(iter(waiting.values()))
        group = groups(self.kernel)[first.group]
        return Fault("deadlock", first.stmt, first.at, state=joint.state, group=group, waiting=tuple(waiting.values()))


def _truth(op: str, value: int) -> bool:
    return value >= 0 if op == ">=" else (value == 0) == (op == "==")


def segments(kernel: tir.Kernel) -> Iterator[dict[str, tuple[tir.Stmt, ...]]]:
    """The body in pieces that run one after the other: statements of everyone, or blocks of roles side by side."""
    common: list[tir.Stmt] = []
    roles: dict[str, tuple[tir.Stmt, ...]] = {}
    for stmt in kernel.body:
        if isinstance(stmt, tir.InRole):
            if common:
                yield {"": tuple(common)}
                common = []
            roles[stmt.role] = roles.get(stmt.role, ()) + stmt.body
        else:
            if roles:
                yield roles
                roles = {}
            common.append(stmt)
    if common:
        yield {"": tuple(common)}
    if roles:
        yield roles


def _only(form: Linear) -> Term | None:
    """The one term of a form that has one, once, beside a constant."""
    return form.terms[0][0] if takes(form) else None
