"""Rings that share bytes as wholes: a proof in which it does not matter which slot lies on which.

Where every slot of one buffer conflicts with every slot of another, the slots of a ring are alike, and there are far
fewer states. More conflicts can only lead to more faults, so what is in order then is in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from tidegate.check.cases import Exhausted
from tidegate.check.control import Undecided
from tidegate.check.explore import MAX_STEPS, Explorer, explorer
from tidegate.check.machine import Machine
from tidegate.check.state import Fault

MORE_STEPS = 60_000
"""Steps of all runs but the first one: each finds that some buffers more have to be taken slot by slot."""

MOST_FAULTS = 16
"""Faults of cases that finer ones may not have, after which it is given up that some buffers conflict as wholes."""


def ordered(machine: Machine, sizes: Mapping[str, int]) -> bool:
    """Whether all is well even where buffers that share bytes conflict in all of their slots, but for those that are in
    order slot by slot only."""
    sites = machine.catalogue
    if machine.kernel.roles or machine.kernel.barriers or sites.trust:
        return False
    wholes, steps = sites.entangled, MAX_STEPS
    while wholes and steps > 0:
        run = explorer(Machine(machine.kernel, wholes=wholes), sizes, most=steps)
        slotwise = faulty(run)
        if slotwise is None:
            return False
        if not slotwise:
            return True
        wholes -= frozenset[str]().union(*(part for part in sites.parts if part & slotwise))
        steps = min(steps, MORE_STEPS) - run.steps - run.decisions
    return False


def faulty(run: Explorer) -> frozenset[str] | None:
    """The buffers that a run takes as wholes and its faults name; None if something else is wrong."""
    machine = run.machine
    faults: list[Fault] = []
    try:
        faults += islice(run.every_case(), MOST_FAULTS)
        if len(faults) < MOST_FAULTS:
            return frozenset()
    except Fault as fault:
        faults = [fault]
    except (Undecided, Exhausted):
        return None
    met = {machine.sites[n].buffer for fault in faults for n in (fault.earlier, fault.later) if n is not None}
    return frozenset(met & machine.catalogue.wholes) or None
