"""The error catalogue: one class per code, with its message template and the next step to take.

Every refusal that an author can cause is an instance of one of these classes. ``str(error)`` is the full report: code,
source line with a caret, the facts that conflict, what to try. docs/errors.md is generated from this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Span:
    """A place in the author's text: 1-based line, 0-based columns, and the text of that line."""

    file: str
    line: int
    column: int
    end_column: int
    text: str

    def render(self, label: str = "") -> str:
        """The location, the line and a caret under it."""
        number = str(self.line)
        text = self.text.expandtabs(1)
        stripped = text.lstrip()
        shift = len(text) - len(stripped)
        start = max(self.column - shift, 0)
        width = max(min(self.end_column - shift, len(stripped.rstrip())) - start, 1)
        gutter = " " * len(number)
        pointer = " " * start + "^" * width
        return (
            f"  {self.file}:{self.line}\n {gutter} |\n {number} | {stripped.rstrip()}\n"
            f" {gutter} | {pointer}{' ' + label if label else ''}"
        )


class TidegateError(Exception):
    """Base of the catalogue.

    Subclasses give ``code``, ``title``, a ``message`` template and a ``hint`` template over the same keyword fields.
    ``span`` is where the problem is; ``related`` are further places, each with a label.
    """

    code: ClassVar[str] = ""
    title: ClassVar[str] = ""
    message: ClassVar[str] = ""
    hint: ClassVar[str] = ""

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
        return self.hint.format(**self.fields)

    def render(self) -> str:
        parts = [f"error[{self.code}] {self.title}: {self.text}"]
        if self.span:
            parts.append(self.span.render())
        for span, label in self.related:
            parts.append(span.render(label) if span else f"  note: {label}")
        if self.hint:
            parts.append(f"  try: {self.next_step}")
        return "\n".join(parts)

    def to_json(self) -> dict[str, object]:
        where = None
        if self.span:
            where = {"file": self.span.file, "line": self.span.line, "column": self.span.column}
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
    """A kernel is a restricted Python subset: assignments, tile loops and tile expressions."""

    code, title = "TG101", "unsupported Python"
    message = "{what} cannot be used inside a kernel"
    hint = "{advice}"


class UnknownName(TidegateError):
    """A name is read that nothing defines at that point."""

    code, title = "TG102", "unknown name"
    message = "{name!r} is not defined here{why}"
    hint = "{advice}"


class NoSource(TidegateError):
    """The source text of the function could not be found (it was made by exec, or its file has changed)."""

    code, title = "TG103", "no source text"
    message = "the source of kernel {kernel!r} cannot be read: {reason}"
    hint = "define the kernel with a def statement in a file or a notebook cell"


class BadSignature(TidegateError):
    """Positional parameters are tensors: tg.Tensor, tg.Out, tg.InOut; keyword-only ones are compile-time constants."""

    code, title = "TG104", "bad kernel signature"
    message = "{what}"
    hint = "{advice}"


class BadCall(TidegateError):
    """A tile operation is called with the wrong number or kind of arguments."""

    code, title = "TG105", "wrong arguments"
    message = "{what}"
    hint = "{advice}"


class BadLoop(TidegateError):
    """Loops run over tg.grid(...) (outermost, once) or tg.tiles(...)."""

    code, title = "TG106", "bad loop"
    message = "{what}"
    hint = "{advice}"


class UnknownConstant(TidegateError):
    """A compile-time constant or size is given that the kernel does not have, or with an unusable value."""

    code, title = "TG107", "unknown or unusable constant"
    message = "{what}"
    hint = "{advice}"


class NotCarried(TidegateError):
    """A value that changes in a loop must exist before it, with one type: a loop may run zero times."""

    code, title = "TG108", "value not carried"
    message = "{name!r} {what}"
    hint = "{advice}"


class CompileTimeFailure(TidegateError):
    """An expression over compile-time values raised an exception when it was evaluated."""

    code, title = "TG109", "compile-time expression failed"
    message = "{expression} raised {exception}"
    hint = "compile-time expressions may use the keyword-only constants, literals and names of the enclosing module"


# ------------------------------------------------------------------------------------------ TG2xx shapes and dtypes


class ShapeMismatch(TidegateError):
    """The shapes of the operands of a tile operation do not fit."""

    code, title = "TG201", "shapes do not fit"
    message = "{what}"
    hint = "{advice}"


class DtypeMismatch(TidegateError):
    """The dtypes of the operands do not fit, or a dtype is unknown."""

    code, title = "TG202", "dtypes do not fit"
    message = "{what}"
    hint = "{advice}"


class WindowMismatch(TidegateError):
    """A window indexes each axis of its tensor with a tile index of the same dimension, or ':' for a fixed axis."""

    code, title = "TG203", "window does not fit its tensor"
    message = "{what}"
    hint = "{advice}"


class WrongDirection(TidegateError):
    """tg.Tensor parameters are read only, tg.Out parameters written only; tg.InOut parameters are both."""

    code, title = "TG204", "wrong direction"
    message = "{what}"
    hint = "{advice}"


class OverlappingWrites(TidegateError):
    """Two CTAs, or two threads of a CTA that nothing orders, would write the same elements of an output."""

    code, title = "TG205", "writes to the same elements"
    message = "{what}"
    hint = "{advice}"


class NeverWritten(TidegateError):
    """An output has no assignment at all."""

    code, title = "TG206", "output never written"
    message = "{tensor} is a {kind} and no statement writes it"
    hint = "assign a tile to a window of {tensor}, or drop the parameter"


# ------------------------------------------------------------------------------------------ TG3xx schedule


class BadSchedule(TidegateError):
    """by=, stages= or to= ask for something that the instruction cannot do."""

    code, title = "TG301", "schedule not possible"
    message = "{what}"
    hint = "{advice}"


class CopyAlignment(TidegateError):
    """cp.async moves 4, 8 or 16 bytes whose addresses are multiples of that size (PTX ISA, cp.async)."""

    code, title = "TG302", "copy not aligned"
    message = "cp.async needs pieces of {need} aligned bytes; {tensor} allows only {align}: {why}"
    hint = "pad that stride to a multiple of 16 bytes, or use by=cuda.ld()"


class NoInstruction(TidegateError):
    """No instruction of the target computes this operation on these shapes or dtypes."""

    code, title = "TG303", "no instruction for this"
    message = "{what}"
    hint = "{advice}"


class UnknownTarget(TidegateError):
    """The target name is not known."""

    code, title = "TG304", "unknown target"
    message = "{name!r} is no target"
    hint = "use one of {known}"


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
    """A plan (made by a producer or loaded from a file) leaves a dependence unordered, or does not fit the program."""

    code, title = "TG501", "plan rejected"
    message = "{what}"
    hint = "{advice}"


class PlanFormat(TidegateError):
    """A plan file cannot be read."""

    code, title = "TG502", "unreadable plan"
    message = "{path}: {reason}"
    hint = "write plans with plan.save(path) or `tidegate plan --json`"


class OrderNotProvable(TidegateError):
    """Two accesses need an order that cannot be proved or provided here."""

    code, title = "TG503", "order not provable"
    message = "{what}"
    hint = "{advice}"


# ------------------------------------------------------------------------------------------ TG6xx TIR


class UnreadableTir(TidegateError):
    """Text that is not TIR: the grammar of docs/tir.md does not allow it there."""

    code, title = "TG601", "unreadable TIR"
    message = "{what}"
    hint = "{advice}"


class IllegalTir(TidegateError):
    """TIR that reads well but breaks a rule that every kernel must keep (tidegate.ir.spec)."""

    code, title = "TG602", "illegal TIR"
    message = "kernel {kernel} breaks {count} rules of TIR\n{violations}"
    hint = "correct the lines named above; docs/tir.md gives the rules"


# ------------------------------------------------------------------------------------------ TG7xx simulation


class WrongArrays(TidegateError):
    """The arrays given to the simulator do not fit the parameters and sizes of the kernel."""

    code, title = "TG711", "arrays do not fit the kernel"
    message = "{what}"
    hint = "{advice}"


class NotExecutable(TidegateError):
    """TIR that has no meaning on the machine: it breaks a rule of tidegate.ir.spec that the simulator stands on."""

    code, title = "TG713", "TIR cannot be executed"
    message = "{stmt}: {what}"
    hint = "tidegate.ir.spec.verify(kernel) lists every rule that the kernel breaks"


# ------------------------------------------------------------------------------------------ TG7xx compile and run


class WrongArguments(TidegateError):
    """The arrays of a call do not fit the kernel's parameters."""

    code, title = "TG701", "wrong arguments"
    message = "{kernel}: {what}"
    hint = "{advice}"


# ------------------------------------------------------------------------------------------ TG8xx CUDA text and launch


class NotEmitted(TidegateError):
    """TIR for which no CUDA text can be written yet."""

    code, title = "TG801", "not emitted yet"
    message = "CUDA text for {instruction} is not supported yet: {text}"
    hint = "plan the kernel with a producer that does not use {instruction}"


class NotEmittable(TidegateError):
    """An instruction is given a layout, type or width that it cannot have on the machine."""

    code, title = "TG802", "instruction does not fit its operands"
    message = "{what}"
    hint = "{advice}"


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
    """The kernel needs more of a resource than the GPU has, or was compiled for another GPU."""

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
    """--set takes NAME=VALUE, where the value is an integer, a float, true, false or a string."""

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
