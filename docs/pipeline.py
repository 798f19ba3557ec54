"""Draws docs/pipeline.svg: the ring of examples/gemm.py:gemm_v2 over 8 trips. `python docs/pipeline.py` writes it."""

from __future__ import annotations

from pathlib import Path

STAGES, TRIPS = 4, 8
LEFT, TOP = 132, 66
PROLOGUE, TRIP = 46, 92  # widths in pixels
LANE, GAP = 30, 6
WAIT = 0  # how far behind the beginning of a trip the barrier stands

COLOURS = {  # class -> property, on light and on dark ground
    "paper": ("fill", "#ffffff", "#161b22"),
    "ink": ("fill", "#1f2328", "#e6edf3"),
    "quiet": ("fill", "#656d76", "#9198a1"),
    "in": ("fill", "#ffffff", "#10151b"),
    "line": ("stroke", "#afb8c1", "#57606a"),
    "sync": ("stroke", "#1f2328", "#e6edf3"),
    "s0": ("fill", "#3f74bf", "#6b9fe8"),
    "s1": ("fill", "#c06a1b", "#e8954a"),
    "s2": ("fill", "#2f8558", "#57b884"),
    "s3": ("fill", "#9556b4", "#c08ad9"),
}


def style() -> str:
    light, dark = ("".join(f" .{c} {{ {p[0]}: {p[side]} }}" for c, p in COLOURS.items()) for side in (1, 2))
    rules = (
        "text { font: 12px system-ui, sans-serif } .in, .small { font-size: 11px } .in, .middle { text-anchor: middle }"
        " .sync { stroke-width: 2 } .edge { fill: none; stroke-width: 1.3 } .flight { fill-opacity: 0.35 }"
    )
    return f"{rules}{light}\n@media (prefers-color-scheme: dark) {{{dark} }}"


def trip(k: int) -> float:
    """Where trip k begins; negative ones are the turns of the prologue."""
    return LEFT + (k + STAGES - 1) * PROLOGUE if k < 0 else LEFT + (STAGES - 1) * PROLOGUE + k * TRIP


def lane(row: int) -> float:
    return TOP + row * (LANE + GAP)


def text(x: float, y: float, what: str, kind: str = "ink") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{kind}">{what}</text>'


def box(x0: float, x1: float, row: int, kind: str, label: str, labelled: str = "in") -> str:
    y = lane(row)
    return f'<rect x="{x0:g}" y="{y:g}" width="{x1 - x0:g}" height="{LANE}" rx="3" class="{kind}"/>' + text(
        (x0 + x1) / 2, y + 19, label, labelled
    )


def lanes() -> list[str]:
    out = [text(16, lane(0) + 19, "all warps: mma")]
    out += [text(16, lane(1 + s) + 19, f"slot {s} of x and y", "quiet") for s in range(STAGES)]
    for item in range(TRIPS):
        slot = item % STAGES
        start = trip(item - STAGES + 1)
        issued = start + 4 if item < STAGES - 1 else start + WAIT + 4
        read, done = trip(item) + WAIT + 4, trip(item + 1) - 4
        out.append(box(issued, trip(item) + WAIT - 4, 1 + slot, f"s{slot} flight", f"copy {item}", "ink small middle"))
        out.append(box(read, done, 1 + slot, f"s{slot}", f"read {item}"))
        out.append(box(read, done, 0, f"s{slot}", f"mma {item}"))
    return out


def syncs() -> list[str]:
    bottom = lane(STAGES + 1) - GAP
    out = []
    for k in range(TRIPS):
        x = trip(k) + WAIT
        out.append(f'<line x1="{x:g}" y1="{TOP - 8}" x2="{x:g}" y2="{bottom:g}" class="sync"/>')
        out.append(text(x + 6, TOP - 8, f"trip {k}", "quiet small"))
    for at in (trip(0) - 1, trip(TRIPS - STAGES + 1) - 1):
        out.append(
            f'<line x1="{at:g}" y1="{TOP - 30}" x2="{at:g}" y2="{bottom:g}" class="line" stroke-dasharray="4 3"/>'
        )
    steady, tail, end = trip(0), trip(TRIPS - STAGES + 1), trip(TRIPS)
    out.append(text((trip(1 - STAGES) + steady) / 2, TOP - 34, "prologue", "quiet middle"))
    out.append(text((steady + tail) / 2, TOP - 34, "steady: each trip refills, computes, waits, meets", "quiet middle"))
    out.append(text((tail + end) / 2, TOP - 34, "tail: nothing left to copy", "quiet middle"))
    return out


def edges() -> list[str]:
    """Why trip 2 needs its sync: full (copy 2 has landed for all), and empty (slot 1 has been read by all)."""
    x = trip(2) + WAIT
    full, read, refill = lane(3) + LANE / 2, lane(2) + 6, lane(2) + 6
    return [
        f'<path d="M{x - 6:g} {full:g} L{x + 6:g} {full:g}" class="sync edge" marker-end="url(#tip)"/>',
        f'<path d="M{trip(2) - 6:g} {read:g} L{x + 6:g} {refill:g}" class="sync edge" marker-end="url(#tip)"/>',
    ]


def notes() -> list[str]:
    y = lane(STAGES + 1) + 14
    lines = (
        "Black line before trip k: each thread waits until at most 2 newer groups are in flight (cp.async wait 2), "
        "then all warps meet (block barrier).",
        "That one pair of syncs serves both directions, as the arrows before trip 2 show: copy 2 has landed and every "
        "warp sees it (full);",
        "every warp has read item 1, so item 5 may go into its slot (empty). Pale: copy in flight. "
        "Solid: read by the tensor cores.",
    )
    return [text(16, y + 18 * i, line, "ink small") for i, line in enumerate(lines)]


def draw() -> str:
    width, height = trip(TRIPS) + 16, lane(STAGES + 1) + 64
    body = "\n".join([*lanes(), *syncs(), *edges(), *notes()])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="Pipeline of a matrix product with a ring of four stages">\n<style>{style()}</style>\n'
        '<defs><marker id="tip" markerWidth="7" markerHeight="6" refX="6" refY="3" orient="auto">'
        '<path d="M0 0 L7 3 L0 6 z" class="ink"/></marker></defs>\n'
        f'<rect width="{width:g}" height="{height:g}" rx="8" class="paper"/>\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw())
