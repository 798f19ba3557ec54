"""Rings that share bytes as wholes: a proof in which it does not matter which slot lies on which.

Where every slot of one buffer conflicts with every slot of another, the slots of a ring are alike, and there are far
fewer states. More conflicts can only lead to more faults, so what is in order then is in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from tidegate.check.cases import Exhausted
from tidegate.check.control import Undecided
from tidegate.check.explore import explorer
from tidegate.check.machine import Machine
from tidegate.check.state import Fault
from tidegate.ir import tir

MOST_FAULTS = 16
"""Faults of cases that finer ones may not have, after which it is given up that some buffers conflict as wholes."""


def ordered(machine: Machine, sizes: Mapping[str, int]) -> bool:
    """Whether all is well even where buffers that share bytes conflict in all of their slots, but for those that are in
    order slot by slot only."""
    sites = machine.catalogue
    if machine.kernel.roles or machine.kernel.barriers or sites.trust:
        return False
    wholes = sites.entangled
    while wholes:
        slotwise = faulty(machine.kernel, sizes, wholes)
        if slotwise is None:
            return False
        if not slotwise:
            return True
        wholes -= frozenset[str]().union(*(part for part in sites.parts if part & slotwise))
    return False


def faulty(kernel: tir.Kernel, sizes: Mapping[str, int], wholes: frozenset[str]) -> frozenset[str] | None:
    """The buffers of ``wholes`` that faults name if they conflict as wholes; None if something else is wrong."""
    machine = Machine(kernel, wholes=wholes)
    faults: list[Fault] = []
    try:
        faults += islice(explorer(machine, sizes).every_case(), MOST_FAULTS)
        if len(faults) < MOST_FAULTS:
            return frozenset()
    except Fault as fault:
        faults = [fault]
    except (Undecided, Exhausted):
        return None
    met = {machine.sites[n].buffer for fault in faults for n in (fault.earlier, fault.later) if n is not None}
    return frozenset(met & wholes) or None
