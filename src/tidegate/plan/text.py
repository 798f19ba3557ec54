"""A plan as text."""

from __future__ import annotations

from tidegate.plan.plan import AsyncPlan, Sync


def render(plan: AsyncPlan) -> str:
    """The plan, one section per part."""
    lines = [
        f"plan {plan.kernel} for {plan.target} by {plan.producer}, {plan.warps} warps",
        *(f"  {name} = {value}" for name, value in plan.constants),
        *(f"CTAs: {order}" for order in filter(None, [_order(plan)])),
        f"shared memory: {plan.smem_bytes} bytes",
    ]
    for b in plan.buffers:
        lines.append(
            f"  {b.ring:<12} {b.stages} x {b.stride} bytes at {b.offset}, live from event {b.first} to {b.last}"
        )
    for c in plan.channels:
        lines.append(
            f"channel {c.name}: {', '.join(c.rings)}; {c.depth} slots, filled {c.ahead} ahead; slot = {c.slot_rule}"
        )
        lines.append(f"  full: {c.full}")
        lines.append(f"  empty: {c.empty}")
    for s in plan.schedule:
        ahead = ", ".join(f"{ring} +{items}" for ring, items in s.ahead) or "nothing"
        early = f", {', '.join(s.early)} a trip early" if s.early else ""
        lines.append(f"loop {s.loop}: {ahead} ahead{early}, {s.prologue} turns of prologue")
    lines.append(f"syncs: {len(plan.syncs)}")
    lines += [f"  {describe(s)}" for s in plan.syncs]
    return "\n".join(lines)


def _order(plan: AsyncPlan) -> str:
    """How CTAs go over the grid, where it is not row by row from 0 on."""
    parts = [f"bands of {a.band} along {a.index}, down their columns" for a in plan.grid if a.band > 1]
    parts += [f"{a.index} backwards" for a in plan.grid if a.backwards]
    return "; ".join(parts)


def describe(sync: Sync) -> str:
    """One line for one sync."""
    count = "" if sync.count is None else f" {sync.count}"
    return f"{sync.id:<4} {sync.kind.value + count:<18} {sync.participants:<12} before {sync.place}: {sync.reason}"
