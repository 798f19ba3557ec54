"""The error catalogue: one class per code, with its message template and the next step to take.

Every refusal that an author can cause is an instance of one of these classes. ``str(error)`` is the full report: code,
source line with a caret, the facts that conflict, what to try. docs/errors.md is generated from this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from tidegate.span import Span as Span


class TidegateError(Exception):
    """A refusal, with its place in the source and what to try: the base of all errors that Tidegate raises.

    ``code`` is stable (TG101, ..; `tidegate errors CODE` explains it), ``str(error)`` the whole report. Subclasses
    give ``code``, ``title``, a ``message`` template and a ``hint`` template over the same keyword fields, and an
    ``example`` (message and hint) where the templates tell nothing. Their docstrings are the catalogue's text: what
    conflicts with what. ``span`` is where the problem is; ``related`` are further places, each with a label.
    """

    code: ClassVar[str] = ""
    title: ClassVar[str] = ""
    message: ClassVar[str] = ""
    hint: ClassVar[str] = ""
    example: ClassVar[tuple[str, str] | None] = None

    def __init__(
        self, span: Span | None = None, related: Sequence[tuple[Span | None, str]] = (), **fields: object
    ) -> None:
        self.span = span
        self.related = tuple(related)
        self.fields = fields
        super().__init__(self.render())

    @property
    def text(self) -> str:
        """The message with its fields filled in."""
        return self.message.format(**self.fields)

    @property
    def next_step(self) -> str:
        """What the author could try, with its fields filled in."""
        return self.hint.format(**self.fields)

    def render(self) -> str:
        parts = [f"error[{self.code}] {self.title}: {self.text}"]
        if self.span:
            parts.append(self.span.render())
        for span, label in self.related:
            again = span and self.span and (span.file, span.line) == (self.span.file, self.span.line)
            parts.append(f"  note: {label}" if not span else span.pointer(label) if again else span.render(label))
        if self.hint:
            parts.append(f"  try: {self.next_step}")
        return "\n".join(parts)

    def to_json(self) -> dict[str, object]:
        at = self.span
        where = {"file": at.file, "line": at.line, "column": at.column} if at else None
        return {"code": self.code, "title": self.title, "message": self.text, "hint": self.next_step, "where": where}


def catalogue() -> Iterator[type[TidegateError]]:
    """All error classes, by code."""
    pending, found = [TidegateError], []
    while pending:
        for cls in pending.pop().__subclasses__():
            pending.append(cls)
            if cls.code:
                found.append(cls)
    return iter(sorted(found, key=lambda c: c.code))


# ------------------------------------------------------------------------------------------ TG1xx language


class UnsupportedSyntax(TidegateError):
    """A kernel is read, not executed, and what it says must have a meaning on a GPU: assignments, loops over tiles,
    conditions on integers and tile expressions do; other Python, and Python's functions on tiles, do not.
    """

    code, title = "TG101", "unsupported Python"
    message = "{what} cannot be used inside a kernel"
    hint = "{advice}"


class UnknownName(TidegateError):
    """A name is read that nothing defines at that point: it is misspelt, names a dimension (whose size is
    tg.size("N")), or was made in a loop or branch that may not have run. Compile-time values come from keyword-only
    constants, the module and enclosing functions.
    """

    code, title = "TG102", "unknown name"
    message = "{name!r} is not defined here{why}"
    hint = "{advice}"


class NoSource(TidegateError):
    """A kernel is read from the text of its function, and that text could not be found: it was made by exec, by a
    lambda or at a plain prompt, or its file has changed since.
    """

    code, title = "TG103", "no source text"
    message = "the source of kernel {kernel!r} cannot be read: {reason}"
    hint = "define the kernel with a def statement in a file or a notebook cell"


class BadSignature(TidegateError):
    """The parameters of the function do not describe a kernel. Positional parameters are what a call passes, and
    each is annotated with its kind and dtype: tg.Tensor, tg.Out or tg.InOut with sizes and a dtype, or tg.Scalar
    with a dtype. Parameters behind a '*' are compile-time constants, and only they have defaults.
    """

    code, title = "TG104", "bad kernel signature"
    message = "{what}"
    hint = "{advice}"
    example = ("the annotation tg.Scalar of 's' does not say its dtype", 'write s: tg.Scalar["f32"]')


class BadCall(TidegateError):
    """An operation is called with arguments of the wrong number or kind: a number where it needs a tile, something
    known only when the kernel runs where it needs a compile-time value, or a function that is none of tiles.
    """

    code, title = "TG105", "wrong arguments"
    message = "{what}"
    hint = "{advice}"
    example = ("axis=2 of a tile of shape (16, 32)", "fold one axis, from -2 to 1; fold the result again for another")


class BadLoop(TidegateError):
    """The head of a loop does not say what a GPU can run over. CTAs are one loop over tg.grid(tg.tiles(...), ...),
    outermost and at most once; inside it, loops run in order over tg.tiles(extent, size), whose index stands for a
    tile, or tg.range(extent), whose index is an integer. An extent is a dimension's name, a number or an integer;
    indices have names of their own.
    """

    code, title = "TG106", "bad loop"
    message = "{what}"
    hint = "{advice}"
    example = (
        "a loop over 'range(3)', which is no tg.grid, tg.tiles or tg.range",
        "write tg.range(3), whose index is an integer of the kernel",
    )


class UnknownConstant(TidegateError):
    """What is given to compile, plain or a call by keyword fits no constant or dimension of the kernel, or its
    value cannot be one: sizes are whole numbers from 0 to 2**31 - 1, constants are hashable.
    """

    code, title = "TG107", "unknown or unusable constant"
    message = "{what}"
    hint = "{advice}"
    example = ("kernel gemm has no constant or dimension 'BQ'", "it has BM, BN, BK, M, N, K, warps")


class NotCarried(TidegateError):
    """A name is bound outside a loop or branch and rebound inside it, so its value behind it depends on what runs.
    A tile may: it is carried, and keeps one dtype and shape, since a loop may run zero times. Integers, numbers and
    compile-time values may not.
    """

    code, title = "TG108", "value not carried"
    message = "{name!r} {what}"
    hint = "{advice}"


class CompileTimeFailure(TidegateError):
    """An expression without tiles is evaluated by Python when the kernel is compiled, and Python raised an
    exception.
    """

    code, title = "TG109", "compile-time expression failed"
    message = "{expression} raised {exception}"
    hint = "compute it from keyword-only constants, literals and names of the module; of tiles only .shape and .dtype"


# ------------------------------------------------------------------------------------------ TG2xx shapes and dtypes


class ShapeMismatch(TidegateError):
    """The shapes of two operands, or of a tile and the window that takes it, do not fit. Operands broadcast as in
    NumPy: matched from the last axis on, sizes agree or one is 1. Stores do not broadcast.
    """

    code, title = "TG201", "shapes do not fit"
    message = "{what}"
    hint = "{advice}"
    example = ("the window of y has shape (16, 32), the tile t (32, 16)", "transpose it: (t).T")


class DtypeMismatch(TidegateError):
    """The dtypes of two operands, or of a tile and the tensor that takes it, differ where nothing converts them
    silently: floats, integers and masks do not mix, nor do two narrow floats. Or a dtype is none.
    """

    code, title = "TG202", "dtypes do not fit"
    message = "{what}"
    hint = "{advice}"
    example = ("y holds f32, the tile t f16", 'write t.astype("f32")')


class WindowMismatch(TidegateError):
    """A window does not index its tensor as that lies in memory: one item per axis, and each a tile index of a loop
    over that same dimension, an integer position, a slice of a fixed number of elements, ':' where the size is
    fixed, or (not last) a tile of rows. The last axis is kept, since accesses run along it, unless the whole window
    is one element.
    """

    code, title = "TG203", "window does not fit its tensor"
    message = "{what}"
    hint = "{advice}"
    example = (
        "axis 0 of x has size M, the index n runs over N",
        "index each axis with the tg.tiles index of the same dimension",
    )


class WrongDirection(TidegateError):
    """A parameter is read that is only written, or written that is only read: tg.Tensor parameters are read only,
    tg.Out parameters written only, and tg.InOut parameters are both.
    """

    code, title = "TG204", "wrong direction"
    message = "{what}"
    hint = "{advice}"
    example = ("b is a tg.Out, which is written only", "keep the tile in a variable, or declare the tensor tg.InOut")


class OverlappingWrites(TidegateError):
    """Two CTAs run in no order, and would touch the same elements of an output. Windows of outputs are indexed by
    all grid indices, in the same places: by the index itself, by slices that move by their size, or by positions of
    which indices are the digits. Or a tile of rows or a slice is written that may overlap another one.
    """

    code, title = "TG205", "writes to the same elements"
    message = "{what}"
    hint = "{advice}"
    example = (
        "the window written to y does not depend on the grid index n, so CTAs that differ in it collide",
        "index y with n, or turn that grid axis into a loop inside the kernel",
    )


class NeverWritten(TidegateError):
    """A parameter is declared tg.Out or tg.InOut, and no statement writes it: a call would leave the array as it
    was.
    """

    code, title = "TG206", "output never written"
    message = "{tensor} is a {kind} and no statement writes it"
    hint = "assign a tile to a window of {tensor}, or drop the parameter"


# ------------------------------------------------------------------------------------------ TG3xx schedule


class BadSchedule(TidegateError):
    """by=, stages= or to= ask for what the instruction, or the place of the load, cannot do. The schedule never
    changes the meaning: without it the target's default is used.
    """

    code, title = "TG301", "schedule not possible"
    message = "{what}"
    hint = "{advice}"
    example = (
        "stages=3 outside a loop: the tile is filled once, and needs one slot",
        "drop stages=, or load the tile inside the loop that uses it",
    )


class CopyAlignment(TidegateError):
    """cp.async moves 4, 8 or 16 bytes whose addresses are multiples of that size (PTX ISA, cp.async), and the
    strides or offsets of this tensor do not promise that.
    """

    code, title = "TG302", "copy not aligned"
    message = "cp.async needs pieces of {need} aligned bytes; {tensor} allows only {align}: {why}"
    hint = "{advice}, or use by=cuda.ld()"
    example = (
        "cp.async needs pieces of 8 aligned bytes; x allows only 4 bytes: its rows (K elements of 2 bytes) begin at "
        "multiples of 4 bytes",
        "pad that stride to a multiple of 16 bytes, or use by=cuda.ld()",
    )


class NoInstruction(TidegateError):
    """No instruction of the target computes this operation on these shapes or dtypes; the plain program has no such
    limit.
    """

    code, title = "TG303", "no instruction for this"
    message = "{what}"
    hint = "{advice}"
    example = ("mma.sync m16n8k16 on [8, 16] @ [16, 8]", "make the rows a multiple of 16")


class UnknownTarget(TidegateError):
    """The target is none of the machines whose facts are known, by name or by architecture."""

    code, title = "TG304", "unknown target"
    message = "{name!r} is no target"
    hint = "{guess}use one of {known}"


class UnknownProducer(TidegateError):
    """The plan producer name is not known, or the producer is not available for this kernel."""

    code, title = "TG305", "unknown plan producer"
    message = "{name!r} is no plan producer"
    hint = "use one of {known}, or load a plan from a file"


class WrongWarps(TidegateError):
    """The number of warps must be a power of two from 1 to 32."""

    code, title = "TG306", "bad number of warps"
    message = "warps={warps} is not a power of two from 1 to 32"
    hint = "use warps={nearest}"


class WrongOccupancy(TidegateError):
    """The most CTAs that may share a multiprocessor are a number from 1 to 32."""

    code, title = "TG307", "bad number of CTAs"
    message = "ctas_per_sm={ctas} is not a number from 1 to 32"
    hint = "use ctas_per_sm=4, or leave it out: then as many CTAs share a multiprocessor as fit"


# ------------------------------------------------------------------------------------------ TG4xx memory


class OverCapacity(TidegateError):
    """The kernel needs more shared memory than a CTA of the target has."""

    code, title = "TG401", "shared memory exceeded"
    message = "{kernel} needs {peak} bytes of shared memory, {target} has {capacity} per CTA\n{table}"
    hint = "{advice}"


class UnknownTargetFact(TidegateError):
    """A fact of the target (a limit, a rate) is needed and not known; nothing is assumed silently."""

    code, title = "TG402", "fact not known"
    message = "{fact} of {target} is not known"
    hint = "state it in the target's facts file with its origin"


# ------------------------------------------------------------------------------------------ TG5xx order and plans


class PlanRejected(TidegateError):
    """A plan (made by a producer or loaded from a file) leaves two accesses of the same bytes unordered, or is for
    another program, target or warps than the kernel has now.
    """

    code, title = "TG501", "plan rejected"
    message = "{what}"
    hint = "{advice}"
    example = (
        "RAW of t: nothing orders line 10 before line 11 at ld_t_r",
        "add cp.async wait before ld_t_r, or let a producer make the plan",
    )


class PlanFormat(TidegateError):
    """A plan file cannot be read."""

    code, title = "TG502", "unreadable plan"
    message = "{path}: {reason}"
    hint = "write plans with plan.save(path) or `tidegate plan --json`"


class OrderNotProvable(TidegateError):
    """Two accesses of the same bytes need an order, and here it can be neither proved nor provided."""

    code, title = "TG503", "order not provable"
    message = "{what}"
    hint = "{advice}"
    example = (
        "cp_async_t does not declare when it completes, so nothing can be ordered after it",
        "declare its completion in its class, or use another instruction",
    )


# ------------------------------------------------------------------------------------------ TG6xx TIR


class UnreadableTir(TidegateError):
    """Text that is not TIR: the grammar of docs/tir.md does not allow it there."""

    code, title = "TG601", "unreadable TIR"
    message = "{what}"
    hint = "{advice}"
    example = ("expected a number or a name, found ')'", "write an expression of sizes and indices")


class IllegalTir(TidegateError):
    """TIR that reads well but breaks a rule that every kernel must keep: names, shapes, types, alignment, capacity,
    who may execute what (tidegate.ir.spec).
    """

    code, title = "TG602", "illegal TIR"
    message = "kernel {kernel} breaks {rules} of TIR\n{violations}"
    hint = "correct the lines named above; docs/tir.md gives the rules"


# ------------------------------------------------------------------------------------------ TG7xx simulation


class WrongArrays(TidegateError):
    """The arrays given to the simulator do not fit the parameters, dtypes and sizes of the kernel."""

    code, title = "TG711", "arrays do not fit the kernel"
    message = "{what}"
    hint = "{advice}"
    example = (
        "M = 100 (axis 0 of a) is no multiple of 16, which the kernel relies on",
        "pad the arrays, or compile the kernel without that promise on M",
    )


class NotExecutable(TidegateError):
    """TIR that has no meaning on the machine: it breaks a rule of tidegate.ir.spec that the simulator stands on."""

    code, title = "TG713", "TIR cannot be executed"
    message = "{stmt}: {what}"
    hint = "tidegate.ir.spec.verify(kernel) lists every rule that the kernel breaks"


class IntegerOverflow(TidegateError):
    """Integers of a kernel (positions, trips, conditions, numbers beside a tile) have 32 bits on a GPU, and what
    overflows is not defined there. The plain program and the simulator compute exactly, and refuse what would overflow.
    Elements of tiles wrap instead, the same everywhere.
    """

    code, title = "TG714", "integer beyond 32 bits"
    message = "{expression} is {value} where {names}, and integers have 32 bits: -2**31 to 2**31 - 1"
    hint = 'divide before multiplying, or compute with a tile, which wraps or has 64 bits: tg.full((1,), n, "i64")'


# ------------------------------------------------------------------------------------------ TG7xx compile and run


class WrongArguments(TidegateError):
    """The arrays and numbers of a call do not fit the kernel's parameters: their count, dtypes, shapes, strides,
    alignment or place, or an output that shares memory with another array.
    """

    code, title = "TG701", "wrong arguments"
    message = "{kernel}: {what}"
    hint = "{advice}"
    example = ("scale: x is f32, the array is float64", "convert it to f32")


# ------------------------------------------------------------------------------------------ TG8xx CUDA text and launch


class NotEmitted(TidegateError):
    """TIR for which no CUDA text can be written yet."""

    code, title = "TG801", "not emitted yet"
    message = "CUDA text for {instruction} is not supported yet: {text}"
    hint = "plan the kernel with a producer that does not use {instruction}"


class NotEmittable(TidegateError):
    """An instruction is given a layout, type or width that it cannot have on the machine: TIR allows more than the
    hardware does.
    """

    code, title = "TG802", "instruction does not fit its operands"
    message = "{what}"
    hint = "{advice}"
    example = ("cp.async of 2 bytes", "use pieces of 4, 8 or 16 bytes")


class NoCompiler(TidegateError):
    """NVRTC, the run-time compiler, is not installed."""

    code, title = "TG811", "no CUDA compiler"
    message = "NVRTC cannot be used: {reason}"
    hint = "install it: pip install 'tidegate[cuda]' (no CUDA toolkit and no GPU are needed to compile)"


class CompileFailed(TidegateError):
    """NVRTC rejected the CUDA text."""

    code, title = "TG812", "CUDA text does not compile"
    message = "{first} (for {arch}); the text and the compiler's log are in {path}"
    hint = "this is an error in Tidegate or in hand-written TIR: look at the text, or report it with that file"


class NoDriver(TidegateError):
    """There is no NVIDIA driver, or it has no GPU for this process."""

    code, title = "TG821", "no GPU to run on"
    message = "{reason}"
    hint = "install the NVIDIA driver and tidegate[cuda]; without a GPU, use kernel.simulate(...)"


class LaunchRefused(TidegateError):
    """The kernel needs more of a resource (shared memory, threads, registers) than the GPU has, or was compiled for
    another GPU.
    """

    code, title = "TG822", "kernel does not fit the GPU"
    message = "{kernel} on {device}: {what}"
    hint = "{advice}"


class LaunchFailed(TidegateError):
    """The driver reported an error while loading, launching or running a kernel."""

    code, title = "TG823", "launch failed"
    message = "{kernel}: {call} returned {status}"
    hint = "{advice}"


class NoSanitizer(TidegateError):
    """NVIDIA's compute-sanitizer, which watches kernels while they run, is not installed."""

    code, title = "TG824", "no compute-sanitizer"
    message = "compute-sanitizer is not in {looked}"
    hint = "install the CUDA toolkit, or put its bin directory on PATH; `tidegate check` needs neither it nor a GPU"


# ------------------------------------------------------------------------------------------ TG85x command line


class UnusableFile(TidegateError):
    """A file named on the command line does not exist, cannot be read, or is of the wrong kind for the command."""

    code, title = "TG851", "unusable file"
    message = "{path!r}: {reason}"
    hint = "{advice}"


class FailingFile(TidegateError):
    """A Python file with kernels is executed to find them, and did not get to its end."""

    code, title = "TG852", "file cannot be loaded"
    message = "{path}: {exception}"
    hint = "run `python {path}` until it ends without an error"


class NoKernel(TidegateError):
    """A Python file defines no kernel at module level."""

    code, title = "TG853", "no kernel in the file"
    message = "{path} defines no kernel"
    hint = "decorate a function at module level with @tg.kernel"


class UnknownKernel(TidegateError):
    """FILE:KERNEL names a kernel that the file does not define."""

    code, title = "TG854", "unknown kernel"
    message = "{path} has no kernel {name!r}"
    hint = "it has {known}"


class BadSetting(TidegateError):
    """--set takes NAME=VALUE, where the value is an integer, a float, true, false or a string, and the name one of
    the kernel's constants, sizes or scalars.
    """

    code, title = "TG855", "bad --set"
    message = "--set {text!r}: {reason}"
    hint = "write --set NAME=VALUE, e.g. --set STAGES=3 --set M=1000"


class BadInputs(TidegateError):
    """The arrays that a run would use do not fit: what the file's own ``inputs`` gives, or sizes beyond all memory."""

    code, title = "TG856", "inputs not usable"
    message = "{kernel}: {what}"
    hint = "{advice}"


class BadTool(TidegateError):
    """`tidegate sanitize --tool` takes the name of one of compute-sanitizer's tools."""

    code, title = "TG858", "unknown tool"
    message = "{name!r} is no tool of compute-sanitizer that finds faults of order"
    hint = "use one of {known}"


class UnknownCode(TidegateError):
    """`tidegate errors CODE` is asked about a code that is not in the catalogue."""

    code, title = "TG857", "unknown error code"
    message = "there is no error {given!r}"
    hint = "the nearest are {nearest}; `tidegate errors` lists all"


class InternalError(TidegateError):
    """Tidegate itself failed: an exception that is no refusal came up on the way."""

    code, title = "TG899", "error in Tidegate"
    message = "{exception} at {place}"
    hint = "please report it with the file; TIDEGATE_TRACEBACK=1 shows where it comes from"
