"""The plain program: the sequential NumPy meaning of HIR, and the rounding bound that comes with it.

This is the reference that everything else is compared with. The schedule (by=, stages=, to=) is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from tidegate.errors import IntegerOverflow, Span, WrongArguments
from tidegate.ir import hir
from tidegate.ir.dtypes import F32, I32, DType, element
from tidegate.ir.elementwise import operand_dtype
from tidegate.ir.expr import Expr, Overflow, evaluate, in_32_bits, symbols
from tidegate.ir.products import FLOAT8
from tidegate.ops import arguments as arguments_
from tidegate.ops.convert import constant, convert, product, tf32, widened
from tidegate.ops.elementwise import ELEMENTWISE, UNKNOWN

if TYPE_CHECKING:
    from tidegate.target.target import Target

FEWEST_FLOAT8_BITS = 13
"""Bits of fraction that the sums of products of 8-bit floats keep on every target (the facts say it of each)."""


def split(program: hir.Program, arguments: Sequence[Any]) -> tuple[Sequence[Any], dict[str, int | float]]:
    """The arrays of a call, and the values of its scalars; raises WrongArguments (count, kind and range of numbers)."""
    return arguments_.split(program.name, program.order, {s.name: s.dtype for s in program.scalars}, arguments)


def bind_sizes(program: hir.Program, arrays: Sequence[Any]) -> dict[str, int]:
    """Sizes of the named dimensions, from the arrays' shapes; raises WrongArguments (count, rank, shape, dtype)."""
    if len(arrays) != len(program.tensors):
        names = ", ".join(t.name for t in program.tensors)
        raise WrongArguments(
            kernel=program.name,
            what=f"got {len(arrays)} arrays for the parameters {names}",
            advice="pass one array each",
        )
    sizes, origin = dict(program.sizes), dict.fromkeys((d for d, _ in program.sizes), "given")
    for tensor, array in zip(program.tensors, arrays, strict=True):
        shape = tuple(getattr(array, "shape", ()))
        wanted = f"[{', '.join(map(str, tensor.shape))}]"
        if len(shape) != len(tensor.shape):
            got = f"shape {shape}" if hasattr(array, "shape") else f"a {type(array).__name__}, which is no array"
            raise WrongArguments(
                kernel=program.name,
                what=f"{tensor.name} is {wanted}, got {got}",
                advice="pass an array of that rank",
            )
        for axis, (expr, size) in enumerate(zip(tensor.shape, shape, strict=True)):
            known = evaluate(expr, {**dict.fromkeys(program.dims, int(size)), **sizes})
            if known != size:
                source = origin.get(str(expr))
                named = f"{known} elements" if source is None else f"{expr} = {known} elements, as {source}"
                raise WrongArguments(
                    kernel=program.name,
                    what=f"{tensor.name} is {wanted}, got shape {shape}: axis {axis} has {named}",
                    advice=f"pass an array with {known} elements there"
                    + ("" if source is None else f", or arrays that agree on {expr}"),
                )
            if str(expr) in program.dims and str(expr) not in sizes:
                sizes[str(expr)], origin[str(expr)] = int(size), f"axis {axis} of {tensor.name}"
        name = str(getattr(array, "dtype", "?")).removeprefix("torch.")
        if name not in (tensor.dtype.name, str(tensor.dtype.numpy)):
            raise WrongArguments(
                kernel=program.name,
                what=f"{tensor.name} holds {tensor.dtype}, got {name}",
                advice=f"convert the array: array.astype({tensor.dtype.numpy.name!r})",
            )
    return sizes


def require_numpy(program: hir.Program, arrays: Sequence[Any]) -> None:
    """Raises WrongArguments unless all are NumPy arrays, and those to fill writable and apart from the others."""
    for tensor, array in zip(program.tensors, arrays, strict=True):
        if not isinstance(array, np.ndarray):
            raise WrongArguments(
                kernel=program.name,
                what=f"the host needs NumPy arrays; {tensor.name} is a {type(array).__name__}",
                advice="pass NumPy arrays, e.g. numpy.empty(shape, dtype) for an output",
            )
        if tensor.output and not array.flags.writeable:
            raise WrongArguments(
                kernel=program.name,
                what=f"{tensor.name} is written, and its array is read-only",
                advice=f"pass an array that can be written for {tensor.name}, such as a copy: array.copy()",
            )
    for i, j in permutations(range(len(arrays)), 2):
        if program.tensors[i].output and _share_memory(arrays[i], arrays[j]):
            raise WrongArguments(
                kernel=program.name,
                what=f"{program.tensors[i].name} is written and shares memory with {program.tensors[j].name}",
                advice=f"give an array of its own for {program.tensors[i].name}",
            )


def _share_memory(a: np.ndarray, b: np.ndarray) -> bool:
    try:
        return np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def run(program: hir.Program, arguments: Sequence[Any]) -> dict[str, int]:
    """Fills the output arrays with the plain program's results. Returns the most trips that each loop, by its id, had;
    a loop that was never reached is left out."""
    arrays, scalars = split(program, arguments)
    sizes = bind_sizes(program, arrays)
    require_numpy(program, arrays)
    named = dict(zip((t.name for t in program.tensors), arrays, strict=True))
    machine = _Machine(program, named, sizes, scalars)
    machine.run()
    return machine.trips


def rounding_bound(
    program: hir.Program, arrays: Mapping[str, Any], target: Target | None = None
) -> dict[str, np.ndarray]:
    """Per output, the largest absolute difference that another order of sums can cause, elementwise, on ``target`` (on
    any, if None). ``arrays``: the arguments by name.

    A running error analysis: every value carries a bound on its error. A sum of n products in f32 is off by at most
    n * 2**-24 * sum |a||b| (Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1) on each side; n
    atomic additions to one element likewise. Tensor cores that keep fewer bits of sums of 8-bit floats are off by as
    much more. Where sums overflow the bound is infinite. ``arrays`` holds what tg.InOut parameters begin with.
    """
    outputs = {
        t.name: arrays[t.name].copy() if t.input else np.zeros_like(arrays[t.name]) for t in program.tensors if t.output
    }
    named = {**arrays, **outputs}
    sizes = bind_sizes(program, [named[t.name] for t in program.tensors])
    scalars = split(program, [named[n] for n in program.order])[1]
    machine = _Machine(program, named, sizes, scalars, bounds=True, target=target)
    with np.errstate(over="ignore", invalid="ignore"):
        machine.run()
    return {name: np.where(np.isnan(error), np.inf, error) for name, error in machine.errors.items()}


F32_LARGEST = float(np.finfo(np.float32).max)

WRAPPING = ("neg", "add", "sub", "mul")
"""Operations whose results may need more bits than integers have."""

Place = tuple[np.ndarray, ...]
"""An index of an array by arrays, one per axis, as np.ix_ makes it."""

FOLDS: dict[str, np.ufunc] = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def spread(data: np.ndarray, op: hir.Spread) -> np.ndarray:
    """The array broadcast to the shape of the op's result."""
    shape = [1] * len(op.result.shape)
    for axis, size in zip(op.axes, data.shape, strict=True):
        shape[axis] = max(shape[axis], size)
    order = np.argsort([a for a, size in zip(op.axes, data.shape, strict=True) if size > 1], kind="stable")
    squeezed = data.reshape([size for size in data.shape if size > 1]).transpose(order) if order.size else data
    return np.broadcast_to(squeezed.reshape(shape), op.result.shape)


@dataclass(frozen=True)
class Added:
    """What atomic additions to a tensor come to: per element the sum of absolute values, with what it began with, and
    the number of additions."""

    total: np.ndarray
    count: np.ndarray


@dataclass
class _Machine:
    """One sequential run: values by id, and with ``bounds`` their error bounds."""

    program: hir.Program
    arrays: Mapping[str, np.ndarray]
    sizes: dict[str, int]
    scalars: Mapping[str, int | float] = field(default_factory=dict)
    bounds: bool = False
    target: Target | None = None
    values: dict[int, np.ndarray] = field(default_factory=dict)
    error: dict[int, np.ndarray] = field(default_factory=dict)
    errors: dict[str, np.ndarray] = field(default_factory=dict)
    added: dict[str, Added] = field(default_factory=dict)
    trips: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        if self.bounds:
            self.errors = {
                t.name: np.zeros(self.arrays[t.name].shape, np.float64) for t in self.program.tensors if t.output
            }
        self.sizes |= {s.name: int(self.scalars[s.name]) for s in self.program.scalars if s.dtype == I32}
        self.grid(list(self.program.grid), {})
        for tensor, added in self.added.items():
            error = self.errors[tensor] + added.count * F32.epsilon * (added.total + self.errors[tensor])
            self.errors[tensor] = overflowing(added.total, error)

    def grid(self, axes: list[hir.GridAxis], indices: dict[str, int]) -> None:
        if not axes:
            self.block(self.program.body, indices)
            return
        axis, rest = axes[0], axes[1:]
        for i in range(-(-evaluate(axis.extent, self.sizes) // axis.size)):
            self.grid(rest, {**indices, axis.index: i})

    def block(self, body: hir.Body, indices: dict[str, int]) -> None:
        """``indices``: the integers known here; those that the body reads are added in a copy."""
        for node in body:
            match node:
                case hir.Loop():
                    self.loop(node, indices)
                case hir.Branch():
                    self.branch(node, indices)
                case hir.LoadScalar():
                    indices = {**indices, node.name: self.element(node, indices)}
                case _:
                    self.op(node, indices)

    def loop(self, loop: hir.Loop, indices: dict[str, int]) -> None:
        current = [self.get(c.initial) for c in loop.carried]
        trips = max(self.integer(loop.trips, indices, loop.span), 0)
        self.trips[loop.id] = max(self.trips.get(loop.id, 0), trips)
        for i in range(trips):
            for c, value in zip(loop.carried, current, strict=True):
                self.set(c.inside, *value)
            self.block(loop.body, {**indices, loop.index: i})
            current = [self.get(c.yielded) for c in loop.carried]
        for c, value in zip(loop.carried, current, strict=True):
            self.set(c.after, *value)

    def branch(self, branch: hir.Branch, indices: dict[str, int]) -> None:
        holds = self.integer(branch.condition, indices, branch.span)
        self.block(branch.then if holds else branch.otherwise, indices)
        for m in branch.merged:
            self.set(m.after, *self.get(m.then if holds else m.otherwise))

    def element(self, op: hir.LoadScalar, indices: dict[str, int]) -> int:
        place, _ = self.place(op.window, indices, op.span)
        found = self.arrays[op.window.tensor][place]
        return element(found.item()) if found.size else 0

    def get(self, value: hir.Value) -> tuple[np.ndarray, np.ndarray | None]:
        return self.values[value.id], self.error.get(value.id)

    def set(self, value: hir.Value, data: np.ndarray, error: np.ndarray | None) -> None:
        self.values[value.id] = data
        if error is not None:
            self.error[value.id] = error

    def op(self, op: hir.Op, indices: dict[str, int]) -> None:
        match op:
            case hir.Load():
                self.load(op, indices)
            case hir.Store():
                self.store(op, indices)
            case hir.AtomicAdd():
                self.atomic_add(op, indices)
            case hir.Fill():
                shape = op.result.shape
                self.set(op.result, np.full(shape, constant(op.number, op.result.dtype)), self.no_error(shape))
            case hir.Splat():
                shape, kind = op.result.shape, op.result.dtype
                held: float = self.scalars.get(str(op.value), 0.0)
                if kind.integer:
                    held = self.integer(op.value, indices, op.span)
                self.set(op.result, np.full(shape, held, kind.numpy), self.no_error(shape))
            case hir.Positions():
                size = op.result.shape[0]
                first = size * indices[op.index] if op.index else 0
                self.set(op.result, np.arange(size, dtype=np.int32) + first, self.no_error((size,)))
            case hir.Dot():
                self.dot(op)
            case hir.Map():
                self.map(op)
            case hir.Cast():
                self.rounded(op.result, *self.get(op.source))
            case hir.Reduce():
                self.reduce(op)
            case hir.Spread():
                data, error = self.get(op.source)
                self.set(op.result, spread(data, op), None if error is None else spread(error, op))
            case hir.Part():
                data, error = self.get(op.source)
                part = tuple(slice(o, o + n) for o, n in zip(op.origin, op.result.shape, strict=True))
                self.set(op.result, data[part], None if error is None else error[part])
            case hir.Transpose():
                data, error = self.get(op.source)
                self.set(op.result, data.T, None if error is None else error.T)

    def no_error(self, shape: tuple[int, ...]) -> np.ndarray | None:
        return np.zeros(shape) if self.bounds else None

    def integer(self, e: Expr, indices: dict[str, int], span: Span) -> int:
        """The value of an integer expression; raises IntegerOverflow."""
        known = {**self.sizes, **indices}
        try:
            return in_32_bits(e, known)
        except Overflow as error:
            names = ", ".join(f"{n} = {known[n]}" for n in dict.fromkeys(symbols(error.part)))
            raise IntegerOverflow(span, expression=error.part, value=error.value, names=names) from None

    def place(self, window: hir.Window, indices: dict[str, int], span: Span) -> tuple[Place, Place]:
        """Indices of the tensor and of the tile: the part of the window that lies inside."""
        inside, part = [], []
        for axis in window.axes:
            extent = evaluate(axis.extent, self.sizes)
            if axis.rows is not None:
                positions = self.get(axis.rows)[0].astype(np.int64)
            else:
                positions = self.integer(axis.origin, indices, span) + np.arange(axis.size)
            kept = np.flatnonzero((positions >= 0) & (positions < extent))
            inside.append(positions[kept])
            if axis.at is None:
                part.append(kept)
        if not all(len(kept) for kept in inside):  # nothing along one axis is nothing at all
            inside, part = ([np.arange(0)] * len(some) for some in (inside, part))
        return np.ix_(*inside), np.ix_(*part)

    def load(self, op: hir.Load, indices: dict[str, int]) -> None:
        inside, part = self.place(op.window, indices, op.span)
        tile = np.zeros(op.result.shape, op.result.dtype.numpy)
        tile[part] = self.arrays[op.window.tensor][inside].reshape(tile[part].shape)
        error = self.no_error(tile.shape)
        if error is not None and op.window.tensor in self.errors:
            error[part] = self.errors[op.window.tensor][inside].reshape(tile[part].shape)
        self.set(op.result, tile, error)

    def atomic_add(self, op: hir.AtomicAdd, indices: dict[str, int]) -> None:
        inside, part = self.place(op.window, indices, op.span)
        name, (data, error) = op.window.tensor, self.get(op.value)
        tensor = self.arrays[name]
        if error is not None and tensor.dtype == np.float32:
            if name not in self.added:
                self.added[name] = Added(np.abs(tensor.astype(np.float64)), np.zeros(tensor.shape))
            shape, added = tensor[inside].shape, self.added[name]
            np.add.at(self.errors[name], inside, error[part].reshape(shape))
            np.add.at(added.total, inside, np.abs(data[part].astype(np.float64)).reshape(shape))
            np.add.at(added.count, inside, 1)
        with np.errstate(all="ignore"):
            np.add.at(tensor, inside, data[part].reshape(tensor[inside].shape))

    def store(self, op: hir.Store, indices: dict[str, int]) -> None:
        inside, part = self.place(op.window, indices, op.span)
        data, error = self.get(op.value)
        tensor = self.arrays[op.window.tensor]
        shape = tensor[inside].shape
        tensor[inside] = data[part].reshape(shape)
        if error is not None:
            self.errors[op.window.tensor][inside] = error[part].reshape(shape)

    def dot(self, op: hir.Dot) -> None:
        a, ea = self.multiplied(op.a, op)
        b, eb = self.multiplied(op.b, op)
        c, ec = self.get(op.c)
        with np.errstate(over="ignore", invalid="ignore"):
            result = convert(c + product(a, b, op.c.dtype), op.c.dtype)
        error = None
        if ea is not None and eb is not None and ec is not None:
            wide_a, wide_b = np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64))
            sums = np.abs(c.astype(np.float64)) + wide_a @ wide_b
            error = ec + ea @ wide_b + wide_a @ eb + ea @ eb
            if op.c.dtype == F32:
                error = overflowing(sums, error + (a.shape[1] + 1) * self.unit(op.a.dtype) * (sums + error))
            else:  # sums that may wrap around
                error = wrapped(sums, error, result.dtype)
        self.set(op.result, result, error)

    def multiplied(self, operand: hir.Value, op: hir.Dot) -> tuple[np.ndarray, np.ndarray | None]:
        """An operand as the product takes it: f32 is rounded to tf32 where the author asks for it."""
        data, error = self.get(operand)
        if op.by is None or not dict(op.by.options).get("tf32"):
            return data, error
        if error is not None:
            low, high = (tf32((data + e).astype(np.float32)).astype(np.float64) for e in (-error, error))
            error = np.where(error > 0, high - low, 0.0)
        return tf32(data), error

    def unit(self, operand: DType) -> float:
        """What a step of a sum of products may lose, relative to the sum."""
        if operand not in FLOAT8:
            return F32.epsilon
        bits = FEWEST_FLOAT8_BITS if self.target is None else self.target.fact("float8_sum_bits")
        return 2.0 ** (1 - bits)

    def map(self, op: hir.Map) -> None:
        row = ELEMENTWISE[op.op]
        pairs = [self.get(a) if isinstance(a, hir.Value) else (a, np.float64(0)) for a in op.args]
        types = [a.dtype if isinstance(a, hir.Value) else None for a in op.args]
        wide = widened([v for v, _ in pairs], types, op.result.dtype)
        error = None
        with np.errstate(all="ignore"):
            data = np.asarray(row.numpy(*wide))
            if self.bounds:
                values, errors = [v.astype(np.float64) for v in wide], [np.asarray(e) for _, e in pairs]
                error = np.broadcast_to(row.error(values, errors), data.shape)
                if op.op in WRAPPING and operand_dtype(op.op, types, op.result.dtype).integer:
                    error = wrapped(row.numpy(*values), error, data.dtype)
                if op.result.dtype.floating:
                    error = error + row.ulps * unit(data)
                    # What differs before it is rounded may be rounded apart.
                    error = np.where(error == 0, 0.0, error + unit(np.abs(data) + error))
                    error = overflowing(np.abs(data.astype(np.float64)), error)
        self.rounded(op.result, data, error)

    def reduce(self, op: hir.Reduce) -> None:
        data, error = self.get(op.source)
        wide = data.astype(op.source.dtype.computed.numpy)
        with np.errstate(all="ignore"):
            result = FOLDS[op.fold].reduce(wide, axis=op.axis, keepdims=True, dtype=wide.dtype)
        if error is not None and op.fold == "sum":
            exact = wide.astype(np.float64)
            sums = (np.abs(exact) + error).sum(axis=op.axis, keepdims=True)
            error = error.sum(axis=op.axis, keepdims=True)
            if op.result.dtype.floating:
                error = overflowing(sums, error + data.shape[op.axis] * F32.epsilon * sums)
            else:
                error = wrapped(exact.sum(axis=op.axis, keepdims=True), error, wide.dtype)
        elif error is not None:
            error = error.max(axis=op.axis, keepdims=True)
        self.rounded(op.result, result, error)

    def rounded(self, result: hir.Value, data: np.ndarray, error: np.ndarray | None) -> None:
        """Converts into the result's dtype."""
        value = convert(data, result.dtype)
        self.set(result, value, None if error is None else converted_error(data, error, value, result.dtype))


def converted_error(data: np.ndarray, error: np.ndarray, value: np.ndarray, dtype: DType) -> np.ndarray:
    """The error of ``value``, which is ``data`` converted. Conversions of floats are monotone: what lies within the
    error comes to lie between the converted ends, so most errors far below the dtype's precision vanish."""
    wide = data.astype(np.float64)
    if dtype.kind == "mask":  # not monotone at 0
        return np.where((error > 0) & (np.abs(wide) <= error), 1.0, 0.0)
    if dtype.integer and data.dtype.kind == "i":  # modulo 2**bits: no order at all where bits are dropped
        most = 2.0 ** (8 * dtype.size)
        kept = data.dtype.itemsize <= dtype.size
        return np.minimum(error, most) if kept else np.where(error > 0, most, 0.0)
    if dtype == F32 and data.dtype == np.float32:
        return error
    with np.errstate(over="ignore", invalid="ignore"):
        nearest = value.astype(np.float64)
        low, high = (convert(wide + e, dtype).astype(np.float64) for e in (-error, error))
        return np.where(low == high, 0.0, np.maximum(high - nearest, nearest - low))


def wrapped(exact: np.ndarray, error: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The error of an integer of ``dtype`` that keeps the low bits of one that is off by ``error``."""
    return np.where((error > 0) & (np.abs(exact) + error >= 2.0 ** (8 * dtype.itemsize - 1)), UNKNOWN, error)


def overflowing(magnitude: np.ndarray, error: np.ndarray) -> np.ndarray:
    """The error of an f32 that is, like its partial sums, no larger than ``magnitude``: what may overflow in one order
    and not in another is not known at all."""
    return np.where((error > 0) & ~(magnitude + error <= F32_LARGEST), np.inf, error)


def unit(data: np.ndarray) -> np.ndarray:
    """At least the unit of the last place of f32, elementwise."""
    return np.maximum(F32.epsilon * np.abs(data.astype(np.float64)), 2.0**-149)
