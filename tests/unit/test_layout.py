"""Laws of layouts, swizzles and shared-memory addresses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.ir.layout import (
    Coord,
    Layout,
    SharedLayout,
    Swizzle,
    active_threads,
    bank_conflicts,
    byte_offsets,
    coordinates,
)

FRAGMENT_A = Layout((16, 16), ((0, 1), (8, 0), (0, 8)), ((0, 2), (0, 4), (1, 0), (2, 0), (4, 0)), (), (1, 1))


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Valid layouts of one to three axes: the steps of every axis dealt to register, lane and warp bits."""
    rank = draw(st.integers(1, 3))
    sizes = [draw(st.integers(0, 4)) for _ in range(rank)]
    steps: list[Coord] = [
        tuple(1 << bit if a == axis else 0 for a in range(rank)) for axis in range(rank) for bit in range(sizes[axis])
    ]
    steps = draw(st.permutations(steps))
    warps = draw(st.integers(0, 3))
    threads = draw(st.integers(0, min(len(steps), 5 + warps)))
    zero: Coord = (0,) * rank
    bits = draw(st.permutations([*steps[:threads], *[zero] * (5 + warps - threads)]))
    rep = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    shape = tuple((1 << s) * r for s, r in zip(sizes, rep, strict=True))
    return Layout(shape, tuple(steps[threads:]), tuple(bits[:5]), tuple(bits[5:]), rep, draw(st.booleans()))


def places(layout: Layout) -> list[Coord]:
    """The coordinate of every element that an active thread holds."""
    active = active_threads(layout)
    return list(zip(*(c[active].ravel().tolist() for c in coordinates(layout)), strict=True))


@given(layouts())
def test_layouts_place_every_element_once_per_replica(layout: Layout) -> None:
    assert layout.problems() == []
    found = places(layout)
    replicas = 2 ** layout.free_mask.bit_count() if layout.replicated else 1
    counts = {c: found.count(c) for c in set(found)} if len(found) < 4096 else dict.fromkeys(found, replicas)
    assert set(counts) == set(np.ndindex(layout.shape))
    assert set(counts.values()) == {replicas}
    assert len(found) == len(counts) * replicas


@given(layouts())
def test_replicas_hold_the_same(layout: Layout) -> None:
    threads = np.arange(layout.threads)
    for axis in coordinates(layout):
        assert axis.shape == (layout.threads, layout.registers)
        assert np.array_equal(axis, axis[threads & ~layout.free_mask])


@given(layouts())
def test_transposing_twice_changes_nothing(layout: Layout) -> None:
    flipped = layout.transposed()
    assert flipped.transposed() == layout
    assert flipped.problems() == []
    if sum(r > 1 for r in layout.rep) <= 1:  # else the repetitions are numbered along another axis first
        for a, b in zip(coordinates(layout), reversed(coordinates(flipped)), strict=True):
            assert np.array_equal(a, b)


@given(layouts())
def test_register_origins_are_those_of_thread_0(layout: Layout) -> None:
    assert layout.register_origins() == list(zip(*(c[0].tolist() for c in coordinates(layout)), strict=True))


def test_fragment_a_is_that_of_the_isa() -> None:
    """PTX ISA, mma.m16n8k16, matrix A: groupID = lane / 4, pairs at 2 * (lane % 4), a2 and a3 eight rows down."""
    row, column = coordinates(FRAGMENT_A)
    lane, i = np.arange(32)[:, None], np.arange(8)[None, :]
    assert np.array_equal(row, lane // 4 + 8 * (i // 2 % 2))
    assert np.array_equal(column, lane % 4 * 2 + i % 2 + 8 * (i // 4))


@pytest.mark.parametrize(
    ("layout", "problem"),
    [
        (Layout((32,), (), ((1,), (2,), (4,), (8,)), (), (2,)), "a warp has 5 lane bits, the layout gives 4"),
        (Layout((32,), (), ((1,), (2,), (4,), (8,), (8,)), (), (1,)), "some coordinate has two places or none"),
        (Layout((64,), (), ((1,), (2,), (4,), (8,), (16,)), (), (1,)), "the bases cover (32,) of the base tile (64,)"),
        (Layout((32,), ((0,),), ((1,), (2,), (4,), (8,), (16,)), (), (1,)), "a register bit has a zero basis"),
        (Layout((8,), (), ((1,), (2,), (3,), (0,), (0,)), (), (1,)), "basis (3,) is no power of two"),
        (Layout((8,), (), ((1,), (2,), (-4,), (0,), (0,)), (), (1,)), "basis (-4,) is no power of two"),
        (Layout((2, 2), (), ((1, 1), (0, 0), (0, 0), (0, 0), (0, 0)), (), (1, 1)), "must move along one axis"),
        (Layout((3,), (), ((0,),) * 5, (), (2,)), "rep (2,) does not divide the shape (3,)"),
        (Layout((3,), (), ((0,),) * 5, (), (0,)), "does not give a positive factor"),
        (Layout((3,), (), ((0,),) * 5, (), (3, 1)), "does not give a positive factor"),
    ],
)
def test_impossible_layouts(layout: Layout, problem: str) -> None:
    assert any(problem in p for p in layout.problems())


swizzles = st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 4)).map(
    lambda t: Swizzle(t[0], t[1], t[0] + t[2])
)


@given(swizzles)
def test_swizzle_is_an_involution_within_its_block(swizzle: Swizzle) -> None:
    offsets = range(4 * swizzle.period)
    assert [swizzle(swizzle(x)) for x in offsets] == list(offsets)
    for start in range(0, len(offsets), swizzle.period):
        block = range(start, start + swizzle.period)
        assert sorted(map(swizzle, block)) == list(block)
    assert all(swizzle(x) % (1 << swizzle.base) == x % (1 << swizzle.base) for x in offsets)


@given(swizzles, st.integers(0, 3), st.sampled_from((2, 4)), st.integers(1, 5))
@settings(max_examples=60)
def test_byte_offsets_are_a_bijection(swizzle: Swizzle, columns: int, size: int, blocks: int) -> None:
    width = 8 << columns
    rows = blocks << max(swizzle.base + swizzle.bits - 4 - columns, 0)  # so the tile has whole swizzle blocks
    shared = SharedLayout((rows, width), size, swizzle)
    coords = tuple(np.indices(shared.shape).reshape(2, -1))
    offsets = byte_offsets(shared, coords)
    assert sorted(offsets.tolist()) == list(range(0, shared.bytes, size)) or 1 << swizzle.base < size
    plain = coords[0] * width * size + coords[1] * size
    assert offsets.tolist() == [swizzle(int(x)) for x in plain]


def test_strides_are_row_major() -> None:
    assert SharedLayout((2, 3, 4), 2).strides == (24, 8, 2)
    assert SharedLayout((2, 3, 4), 2).bytes == 48


LANE = np.arange(32)


@pytest.mark.parametrize(
    ("addresses", "width", "extra"),
    [
        pytest.param(LANE * 4, 4, 0, id="neighbouring words"),
        pytest.param(LANE * 2, 2, 0, id="two lanes to a word"),
        pytest.param(LANE * 0, 4, 0, id="one word for all"),
        pytest.param(LANE * 8, 4, 1, id="every second word"),
        pytest.param(LANE * 128, 4, 31, id="a column of rows of 128 bytes"),
        pytest.param(LANE * 132, 4, 0, id="a column of padded rows"),
        pytest.param(LANE * 8, 8, 0, id="neighbouring double words"),
        pytest.param(LANE * 16, 16, 0, id="neighbouring 16-byte pieces"),
        pytest.param(LANE * 128, 16, 28, id="16 bytes of every row"),
    ],
)
def test_bank_conflicts(addresses: np.ndarray, width: int, extra: int) -> None:
    assert bank_conflicts(addresses, width) == extra


def test_swizzle_128_frees_columns_of_pieces() -> None:
    """One 16-byte piece of each of eight rows of 128 bytes: without a swizzle they are in the same banks."""
    swizzle = Swizzle(3, 4, 3)
    for piece in range(8):
        addresses = np.array([swizzle(int(lane % 8 * 128 + piece * 16)) for lane in LANE])
        assert bank_conflicts(addresses, 16) == 0
