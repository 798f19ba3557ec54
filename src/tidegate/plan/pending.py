"""What is still unordered at a point of a timeline, what a sync makes of that, and which syncs order what is needed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidegate.analyze.depend import Dependence
from tidegate.plan.plan import Sync, SyncKind

OPEN = -1
"""Age of a copy whose group is not committed yet."""

OLDEST = 64
"""Ages saturate here; a wait for more groups than this is never needed."""

Key = tuple[str, str, int]
"""Step, ring, and item modulo the ring's depth, counted from the reader's current item."""


Marks = frozenset[str | tuple[int, ...]]
"""Rendezvous: "warp", or the warps of a named barrier."""


@dataclass(frozen=True)
class Pending:
    """An access that later ones may conflict with. ``age``: groups committed since (None: complete); ``met``: what has
    happened since it was complete; ``passed``: its reader has gone on to the next item. ``older``: of a copy that may
    not have been issued, where an older access was complete, what that one has met (None: there is none)."""

    age: int | None
    met: Marks = frozenset()
    passed: bool = False
    older: Marks | None = None


State = dict[Key, Pending]


@dataclass(frozen=True)
class Wanted:
    """What has to stand at one place: a commit, a wait that leaves ``count`` groups (None: no wait), a rendezvous
    inside each of the warps ``lanes``, and one of all ``crossing`` warps."""

    commit: bool = False
    count: int | None = None
    lanes: frozenset[int] = frozenset()
    crossing: frozenset[int] = frozenset()

    def __or__(self, other: Wanted) -> Wanted:
        counts = [c for c in (self.count, other.count) if c is not None]
        return Wanted(
            self.commit or other.commit,
            min(counts, default=None),
            self.lanes | other.lanes,
            self.crossing | other.crossing,
        )

    def syncs(self, place: str, warps: int) -> list[Sync]:
        """The fewest syncs that do it: commit, one wait, one rendezvous."""
        out: list[Sync] = []
        if self.commit:
            out.append(make(SyncKind.COPY_COMMIT, place))
        if self.count is not None:
            out.append(make(SyncKind.COPY_WAIT, place, count=self.count))
        crossing = self.crossing | self.lanes if self.crossing else self.crossing  # one rendezvous does both
        if len(crossing) == warps > 1:
            out.append(make(SyncKind.BLOCK, place, "all warps"))
        elif crossing:
            out.append(make(SyncKind.NAMED, place, "warps " + ",".join(map(str, sorted(crossing)))))
        elif self.lanes:
            out.append(make(SyncKind.WARP, place, "each warp"))
        return out


def wanted(needs: list[tuple[Key, Dependence | None]], state: State) -> Wanted:
    """What orders all needs at one place."""
    ages = [age for k, d in needs if (age := state[k].age) is not None and (d is None or d.awaits)]
    commit = OPEN in ages
    scopes = [d.scope for k, d in needs if d is not None and not met(state[k], d)]
    return Wanted(
        commit,
        min(ages) + commit if ages else None,
        frozenset[int]().union(*(s.warps for s in scopes if s.lanes)),
        frozenset[int]().union(*(s.warps for s in scopes if not s.lanes)),
    )


def make(kind: SyncKind, place: str, participants: str = "each thread", count: int | None = None) -> Sync:
    """A sync whose id, protected pairs and reason are filled in when the plan is finished."""
    return Sync("", kind, place, participants, count, None, (), None, "")


def met(pending: Pending, dependence: Dependence) -> bool:
    """Has a rendezvous since the access covered the threads of both sides?"""
    scope = dependence.scope
    if scope.private:
        return True
    if scope.lanes and "warp" in pending.met:
        return True
    return any(isinstance(m, tuple) and scope.warps <= set(m) for m in pending.met)


def apply(state: State, sync: Sync) -> State:
    """The state after a sync."""
    match sync.kind:
        case SyncKind.COPY_COMMIT:
            return {k: p if p.age is None else replace(p, age=min(p.age + 1, OLDEST)) for k, p in state.items()}
        case SyncKind.COPY_WAIT:
            limit = sync.count or 0
            return {k: Pending(None) if p.age is not None and p.age >= limit else p for k, p in state.items()}
        case SyncKind.BLOCK:
            return {k: replace(p, older=None) for k, p in state.items() if p.age is not None}
        case SyncKind.WARP | SyncKind.NAMED:
            mark = "warp" if sync.kind is SyncKind.WARP else sync.warps
            return {k: _marked(p, mark) for k, p in state.items()}
    return state


def _marked(p: Pending, mark: str | tuple[int, ...]) -> Pending:
    if p.age is None:
        return Pending(None, p.met | {mark})
    return p if p.older is None else replace(p, older=p.older | {mark})


def join(a: State, b: State) -> State:
    """Either state may hold: what is pending in one is pending, with the least that both promise."""
    out = dict(a)
    for key, other in b.items():
        mine = out.get(key)
        if mine is None:
            out[key] = other
            continue
        ages = [p.age for p in (mine, other) if p.age is not None]
        older = [p.met if p.age is None else p.older for p in (mine, other)] if ages else []
        found = [marks for marks in older if marks is not None]
        out[key] = Pending(
            min(ages) if ages else None,
            mine.met & other.met,
            mine.passed or other.passed,
            frozenset.intersection(*found) if found else None,
        )
    return out
