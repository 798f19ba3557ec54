"""A kernel compiled for one target: every form it takes on the way down, each made when first asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.analyze.memory import Allocation, largest_stages, ring_bytes
from tidegate.emit import emit
from tidegate.errors import BadCall, WrongArguments
from tidegate.ir import hir, legal, tir
from tidegate.legalise.program import legalise
from tidegate.lower.lower import lower
from tidegate.plan.file import load
from tidegate.plan.plan import AsyncPlan
from tidegate.plan.producers import Analysis, analyse, producer
from tidegate.plan.validate import validate
from tidegate.target.target import Target, find

if TYPE_CHECKING:
    from tidegate.check import Verdict
    from tidegate.runtime.compile import Cubin
    from tidegate.runtime.launch import Loaded
    from tidegate.simulate import Simulation

T = TypeVar("T")


@dataclass
class Timings:
    """Milliseconds per stage of the way down."""

    spent: dict[str, float] = field(default_factory=dict)

    def measure(self, stage: str, work: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = work()
        self.spent[stage] = self.spent.get(stage, 0.0) + (time.perf_counter() - start) * 1e3
        return result


@dataclass(frozen=True)
class BufferReport:
    """One ring: bytes of one slot's stride, of the whole ring, and where it lies."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    stages: int
    slot_bytes: int
    bytes: int
    offset: int


@dataclass(frozen=True)
class SharedMemory:
    """``peak`` bytes hold the rings, ``requested`` bytes are asked for at launch; ``largest_stages`` is what fits if
    all rings of several slots had that many (0: not even one slot each)."""

    kernel: str
    target: str
    peak: int
    requested: int
    capacity: int
    largest_stages: int
    buffers: tuple[BufferReport, ...]

    def __str__(self) -> str:
        lines = [f"{self.kernel} on {self.target}: {self.peak} of {self.capacity} bytes of shared memory"]
        if self.requested > self.peak:
            lines.append(f"  {self.requested} bytes are requested, so that no more CTAs share a multiprocessor")
        for b in self.buffers:
            shape = "x".join(map(str, b.shape))
            lines.append(
                f"  {b.name:<12} {shape:>9} {b.dtype:<4} {b.stages} x {b.slot_bytes:>6} = {b.bytes:>7} bytes "
                f"at {b.offset}"
            )
        if any(b.stages > 1 for b in self.buffers):
            lines.append(f"  largest number of stages that fits: {self.largest_stages}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        from dataclasses import asdict

        return asdict(self)


@dataclass
class Compiled:
    """A kernel for one target, constants and sizes: what ``kernel.compile(...)`` gives.

    ``plan`` (every buffer, sync and its reason), ``tir``, ``cuda`` and ``smem`` print readably; ``cubin`` is the
    machine code with its registers and spills. ``check()`` and ``simulate(...)`` need no GPU; calling it on arrays and
    numbers, in the order of the parameters, launches it. Arguments that do not fit are refused (TG701).
    """

    program: hir.Program
    target: Target
    legal: legal.LegalProgram
    analysis: Analysis
    plan: AsyncPlan
    timings: Timings

    @property
    def name(self) -> str:
        return self.program.name

    def __repr__(self) -> str:
        return f"<tidegate {self.name} for {self.target.name}, plan {self.plan.producer}>"

    @cached_property
    def kernel(self) -> tir.Kernel:
        """The TIR object."""
        return self.timings.measure("lower", lambda: lower(self.legal, self.plan))

    @cached_property
    def tir(self) -> str:
        """The TIR text."""
        from tidegate.ir.text import print_kernel

        return print_kernel(self.kernel)

    @cached_property
    def cuda(self) -> str:
        """CUDA C++ text."""
        return self.timings.measure("emit", lambda: emit(self.kernel))

    @cached_property
    def smem(self) -> SharedMemory:
        """Shared memory in bytes: per buffer, per CTA, and what the target has; the most stages that fit."""
        return shared_memory(self.legal, self.analysis.allocation, self.target, self.analysis.share)

    @cached_property
    def cubin(self) -> Cubin:
        """The machine code, from the disk cache where it has been compiled before."""
        from tidegate.runtime.compile import cubin

        text = self.cuda
        return self.timings.measure("compile", lambda: cubin(text, self.target.arch))

    @cached_property
    def loaded(self) -> Loaded:
        """The kernel on the device."""
        from tidegate.runtime.launch import Loaded

        return Loaded(self.kernel, self.cubin)

    def check(self, sizes: Mapping[str, int] | None = None) -> Verdict:
        """The independent checker's verdict on the TIR, for every size that is neither fixed nor given by ``sizes``.
        Raises WrongArguments for sizes that the compiled kernel does not take."""
        from tidegate.check import check

        return self.timings.measure("check", lambda: check(self.kernel, sizes))

    def simulate(self, *arguments: Any, completion: str = "late", seed: int = 0) -> Simulation:
        """Runs the TIR on the CPU with adversarial asynchrony (``completion``: late, early, random). Fills the output
        arrays, and returns what it noticed."""
        from tidegate.ops.plain import require_numpy, split
        from tidegate.simulate import simulate

        self.fits(arguments)
        arrays, numbers = split(self.program, arguments)
        require_numpy(self.program, arrays)
        named = {t.name: a for t, a in zip(self.program.tensors, arrays, strict=True)}
        given = {**named, **numbers}
        result = simulate(self.kernel, given, completion=completion, seed=seed)  # type: ignore[arg-type]
        for tensor in self.program.tensors:
            if tensor.output:
                named[tensor.name][...] = result.outputs[tensor.name]
        return result

    def fits(self, arguments: tuple[Any, ...]) -> dict[str, int]:
        """The sizes of a call; raises WrongArguments where they break what the kernel was compiled for."""
        from tidegate.ops.plain import bind_sizes, split

        sizes = bind_sizes(self.program, split(self.program, arguments)[0])
        for dim in self.legal.dims:
            if sizes[dim.name] % dim.multiple:
                raise WrongArguments(
                    kernel=self.name,
                    what=f"{dim.name} = {sizes[dim.name]}, but it was compiled for multiples of {dim.multiple}",
                    advice=f"compile with {dim.name}={sizes[dim.name]}, or multiples={{{dim.name!r}: 1}}",
                )
        return sizes

    def __call__(self, *arguments: Any) -> None:
        """Launches on the arrays' device and current stream."""
        from tidegate.ops.plain import split

        if not self.program.scalars:
            self.loaded(*arguments)
            return
        arrays, numbers = split(self.program, arguments)
        self.loaded(*arrays, scalars=tuple(numbers.values()))


def compile_program(
    program: hir.Program,
    target: str | None,
    plan: AsyncPlan | str | None,
    share: bool,
    pointer_align: int = 16,
    timings: Timings | None = None,
) -> Compiled:
    """Legalises, analyses and plans; what follows is made on demand. A plan that was made before tells the target."""
    _require_bool(share)
    if isinstance(plan, str) and plan.endswith(".json"):
        plan = load(plan, program.name)
    if isinstance(plan, AsyncPlan) and target is None:
        target = plan.target
    machine = find(default_target() if target is None else target)
    clock = timings or Timings()
    lowered = clock.measure("legalise", lambda: legalise(program, machine, pointer_align))
    analysis = clock.measure("analyse", lambda: analyse(lowered, machine, program.constants, share))
    chosen = clock.measure("plan", lambda: _plan(plan, analysis, machine))
    return Compiled(program, machine, lowered, analysis, chosen, clock)


def _require_bool(share: object) -> None:
    if not isinstance(share, bool):
        advice = "share=False keeps the bytes of all buffers apart, share=True lets them share"
        raise BadCall(what=f"share={share!r} is neither True nor False", advice=advice)


def default_target() -> str:
    """The GPU that is there, else the default of the package."""
    from tidegate.runtime.device import available
    from tidegate.target.target import DEFAULT_TARGET

    device = available()
    return device.arch if device else DEFAULT_TARGET


def _plan(plan: AsyncPlan | str | None, analysis: Analysis, target: Target) -> AsyncPlan:
    if isinstance(plan, AsyncPlan):
        validate(plan, analysis)
        return plan
    return producer(target.default_plan if plan is None else plan, target)(analysis)


def shared_memory(
    program: legal.LegalProgram, allocation: Allocation, target: Target, share: bool = True
) -> SharedMemory:
    """The report for an allocation."""
    capacity = target.fact("smem_per_cta")
    rows = []
    for p in allocation.placements:
        ring = program.ring(p.ring)
        rows.append(
            BufferReport(p.ring, ring.shape, ring.dtype.name, ring.stages, p.stride, ring_bytes(ring), p.offset)
        )
    most = largest_stages(program, capacity, share)
    return SharedMemory(program.name, target.name, allocation.peak, allocation.requested, capacity, most, tuple(rows))


def smem_report(kernel: Any, target: str | None, given: Mapping[str, Any]) -> SharedMemory:
    """The report without planning; raises OverCapacity if it does not fit."""
    from tidegate.analyze.memory import allocate

    options = dict(given)
    share = options.pop("share", True)
    _require_bool(share)
    multiples = options.pop("multiples", None)
    machine = find(default_target() if target is None else target)
    program = legalise(kernel.program(multiples, **options), machine)
    return shared_memory(program, allocate(program, machine, share), machine, share)
