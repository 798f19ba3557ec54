"""Programs that once went wrong, each with both producers: carried values, odd tiles, unusual trips, names."""

from __future__ import annotations

import pytest
from judging import judge
from strategies import Dim, RandomProgram

from tidegate.errors import OverlappingWrites


def program(
    parameters: str, body: str, *, warps: int = 1, multiple: int = 1, **sizes: int | tuple[int, str]
) -> RandomProgram:
    """A program of one kernel; sizes are run-time ones, or fixed if given as (size, "fixed")."""
    head = (
        f"import tidegate as tg\nfrom tidegate import cuda\n\n\n@tg.kernel(warps={warps})\ndef program({parameters}):\n"
    )
    lines = [f"    {line}\n" for line in body.strip("\n").split("\n")]
    dims = [Dim(n, 0, s[0] if isinstance(s, tuple) else s, isinstance(s, tuple)) for n, s in sizes.items()]
    shapes = []
    for parameter in parameters.split("; "):
        name, kind = parameter.rstrip(",").split(": ")
        *shape, dtype = eval(kind.split("[", 1)[1].rstrip("]") + ",")
        shapes.append((name, tuple(shape), dtype, ".Out" in kind))
    text = head.replace("; ", ", ") + "".join(lines)
    return RandomProgram(text, warps, tuple(dims), tuple(shapes), multiple)


SQUARE = 'a: tg.Tensor["N", "N", "f32"]; o: tg.Out[16, 16, "f32"]; p: tg.Out[16, 16, "f32"]'
PROGRAMS = {
    "two carried values change places": program(
        SQUARE,
        """
x = tg.zeros((16, 16))
y = tg.full((16, 16), 2.0)
for i in tg.tiles("N", 16):
    old = x
    x = y + tg.load(a[i, i])
    y = old
o[:, :] = x
p[:, :] = y
""",
        N=40,
    ),
    "an inner loop reads the carried value that its result replaces": program(
        SQUARE,
        """
x = tg.full((16, 16), 1.0)
for i in tg.tiles("N", 16):
    s = tg.zeros((16, 16))
    for j in tg.tiles("N", 16):
        s = s + x + tg.load(a[i, j])
    x = s
o[:, :] = x
p[:, :] = x
""",
        N=40,
    ),
    "an inner loop starts from the carried value and reads it again": program(
        SQUARE,
        """
x = tg.full((16, 16), 1.0)
for i in tg.tiles("N", 16):
    base = x
    for j in tg.tiles("N", 16):
        x = x * 0.5 + base
    p[:, :] = base
o[:, :] = x
""",
        N=40,
    ),
    "a start value is made while the carried value is still read": program(
        SQUARE,
        """
x = tg.full((16, 16), 1.0)
for i in tg.tiles("N", 16):
    s = tg.zeros((16, 16))
    p[:, :] = x + 1.0
    for j in tg.tiles("N", 16):
        s = s + tg.load(a[i, j])
    x = s
o[:, :] = x
""",
        N=40,
    ),
    "a carried value is transposed": program(
        SQUARE,
        """
x = tg.full((16, 16), 1.0)
for i in tg.tiles("N", 16):
    x = x.T + tg.load(a[i, i])
o[:, :] = x
p[:, :] = x.T
""",
        N=40,
    ),
    "a tile that repeats along both axes is transposed in registers and in shared memory": program(
        'a: tg.Tensor[24, 24, "f32"]; o: tg.Out[24, 24, "f32"]; p: tg.Out[24, 24, "f32"]',
        """
x = tg.load(a[:, :], by=cuda.cp_async())
o[:, :] = x.T
y = x * 2.0
p[:, :] = y + y.T
""",
    ),
    "a product has work for some of the warps": program(
        'a: tg.Tensor[48, 16, "f16"]; b: tg.Tensor[16, 48, "f16"]; o: tg.Out[48, 48, "f32"]',
        """
x = tg.load(a[:, :])
y = tg.load(b[:, :])
o[:, :] = tg.dot(x, y)
""",
        warps=4,
    ),
    "a copy whose reader may not run lands before the kernel ends": program(
        'a: tg.Tensor["M", 16, "f32"]; o: tg.Out["M", "N", "f32"]',
        """
for i in tg.tiles("M", 16):
    x = tg.load(a[i, :], by=cuda.cp_async(), stages=2)
    for j in tg.tiles("N", 16):
        o[i, j] = x
""",
        M=40,
        N=0,
    ),
    "waits that come and go from trip to trip": program(
        'a: tg.Tensor["N", 16, "f32"]; o: tg.Out["M", 16, "f32"]; p: tg.Out["N", 16, "f32"]',
        """
for i in tg.tiles("N", 16):
    x = tg.load(a[i, :], by=cuda.cp_async(), stages=3)
    s = tg.zeros((16, 16))
    for t in tg.tiles(4, 1):
        for j in tg.tiles("M", 16):
            o[j, :] = x.T
            s = s - (x + x)
        p[i, :] = s
""",
        N=40,
        M=24,
    ),
    "two loops over one size run together or not at all": program(
        'a: tg.Tensor[16, 16, "f32"]; b: tg.Tensor[16, "N", "f32"]; '
        'o: tg.Out[16, "N", "f32"]; p: tg.Out["N", 16, "f32"]',
        """
x = tg.load(a[:, :], by=cuda.cp_async())
for i in tg.tiles("N", 16):
    o[:, i] = x.T
for j in tg.tiles("N", 16):
    y = tg.load(b[:, j], by=cuda.cp_async())
    p[j, :] = y.T
""",
        N=40,
    ),
    **{
        f"{trips} known trips of a ring of {stages}": program(
            'a: tg.Tensor["N", 16, "f32"]; o: tg.Out[16, "N", "f32"]; p: tg.Out[16, 16, "f32"]',
            f"""
s = tg.zeros((16, 16))
for i in tg.tiles("N", 16):
    x = tg.load(a[i, :], by=cuda.cp_async(), stages={stages})
    o[:, i] = x.T
    s = s + x
p[:, :] = s + s.T
""",
            N=(16 * trips, "fixed"),
        )
        for stages in (1, 3)
        for trips in (0, 1, 2, 3, 7)
    },
    "names that the plan would choose": program(
        'line: tg.Tensor["N", 16, "f32"]; body: tg.Out[16, "N", "f32"]',
        """
for i in tg.tiles("N", 16):
    fill_L1 = tg.load(line[i, :], by=cuda.cp_async(), stages=2)
    read_L1 = fill_L1 * 2.0
    slot_L1 = read_L1 + 1.0
    body[:, i] = slot_L1.T
""",
        N=40,
    ),
    "rows of an odd number of halves in a ring, by whatever fits": program(
        'a: tg.Tensor[4, "N", "f16"]; o: tg.Out[4, "N", "f16"]',
        """
for i in tg.tiles("N", 3):
    o[:, i] = tg.load(a[:, i], stages=2) * 2.0
""",
        multiple=8,
        N=40,
    ),
    "two stores to one output from values of two layouts": program(
        'a: tg.Tensor[32, 32, "f16"]; o: tg.Out[32, 32, "f32"]',
        """
for i in tg.tiles(3, 1):
    x = tg.load(a[:, :], by=cuda.cp_async())
    o[:, :] = x.T.astype("f32")
    o[:, :] = tg.dot(x, x)
""",
        warps=2,
    ),
}


# A loop of no trips, fixed when compiling, around a product whose fragments are read ahead.
PROGRAMS["a product in a loop that never runs"] = program(
    'a: tg.Tensor[16, "K", "f16"]; b: tg.Tensor["K", 8, "f16"]; o: tg.Out[16, 8, "f32"]',
    """
acc = tg.full((16, 8), 3.0)
for k in tg.tiles("K", 32):
    x = tg.load(a[:, k], stages=3)
    y = tg.load(b[k, :], stages=3)
    acc = tg.dot(x, y, acc + y.astype("f32").sum(axis=0))
o[:, :] = acc
""",
    warps=2,
    K=(0, "fixed"),
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_variant_is_right(name: str) -> None:
    outcome = judge(PROGRAMS[name])
    assert not outcome.refusal
    assert not outcome.faults, "\n".join(f"{kind}: {text}" for kind, text in outcome.faults)


def test_stores_of_two_tile_shapes_to_one_output_are_refused() -> None:
    text = """
for i in tg.tiles(2, 1):
    o[i, :] = tg.zeros((1, 64))
o[:, :] = tg.load(a[:, :])
"""
    outcome = judge(program('a: tg.Tensor[2, 64, "f32"]; o: tg.Out[2, 64, "f32"]', text))
    assert OverlappingWrites.__name__ in outcome.refusal


def test_stores_along_different_axes_of_one_output_are_refused() -> None:
    text = """
o[1, :, :] = tg.load(a[1, :, :])
o[:, 2, :] = tg.load(a[2, :, :]) * 2.0
"""
    outcome = judge(program('a: tg.Tensor[8, 8, 16, "f32"]; o: tg.Out[8, 8, 16, "f32"]', text, warps=2))
    assert OverlappingWrites.__name__ in outcome.refusal
