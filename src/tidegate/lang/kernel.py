"""The kernel object: what ``@tg.kernel`` returns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

from tidegate.errors import UnknownConstant, WrongWarps
from tidegate.ir import hir

if TYPE_CHECKING:
    from tidegate.lang.source import Signature, Source

DEFAULT_WARPS = 4


class Kernel:
    """A kernel: callable on arrays, and the way to its plan, its text forms and its CUDA.

    Keyword-only parameters of the function are compile-time constants; every method that compiles takes them, and
    ``warps`` and the names of dimensions, as keyword arguments.
    """

    def __init__(self, function: Callable[..., Any], warps: int = DEFAULT_WARPS) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = function.__name__
        self.warps = warps
        self.launches: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"<tidegate kernel {self.name}>"

    # -------------------------------------------------------------------------------------- front end

    @functools.cached_property
    def source(self) -> Source:
        from tidegate.lang.source import read

        return read(self.function)

    @functools.cached_property
    def signature(self) -> Signature:
        from tidegate.lang.source import signature

        return signature(self.source, self.function)

    def constants(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All compile-time constants, defaults filled in; raises UnknownConstant."""
        from tidegate.lang.source import REQUIRED

        known = dict(self.signature.constants)
        unknown = [name for name in given if name not in known]
        if unknown:
            raise UnknownConstant(
                what=f"kernel {self.name} has no constant or dimension {unknown[0]!r}",
                advice=f"it has {', '.join((*known, *self.dims, 'warps'))}",
            )
        merged = {**known, **given}
        missing = [name for name, value in merged.items() if value is REQUIRED]
        if missing:
            raise UnknownConstant(
                what=f"the constant {missing[0]!r} of kernel {self.name} has no value",
                advice=f"give {missing[0]}=..., or a default in the signature",
            )
        return merged

    @functools.cached_property
    def dims(self) -> tuple[str, ...]:
        """Names of the run-time dimensions, in order of appearance."""
        names = (s for _, kind, _ in self.signature.tensors for s in kind.shape if isinstance(s, str))
        return tuple(dict.fromkeys(names))

    def program(self, multiples: Mapping[str, int] | None = None, **given: Any) -> hir.Program:
        """The HIR for these constants and sizes. ``multiples``: what divides the sizes that are not given."""
        from tidegate.lang.parser import parse

        warps = given.pop("warps", self.warps)
        if not isinstance(warps, int) or isinstance(warps, bool) or warps < 1 or warps > 32 or warps & (warps - 1):
            power = 1 << (min(max(warps, 1), 32) - 1).bit_length() if isinstance(warps, int) else DEFAULT_WARPS
            raise WrongWarps(self.source.span(self.source.tree), warps=warps, nearest=power)
        sizes = {name: given.pop(name) for name in self.dims if given.get(name) is not None}
        for name, size in sizes.items():
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise UnknownConstant(
                    what=f"dimension {name}={size!r} is not a size", advice="give an integer of 0 or more"
                )
        return parse(self.source, self.signature, self.constants(given), sizes, multiples or {}, warps)

    # -------------------------------------------------------------------------------------- meaning

    def plain(self, *arrays: Any, **given: Any) -> None:
        """The NumPy meaning: fills the outputs among ``arrays`` (NumPy arrays, in the order of the parameters)."""
        from tidegate.ops.plain import run

        run(self.program(**given), arrays)

    # -------------------------------------------------------------------------------------- the way down

    def compile(self, target: str | None = None, *, plan: Any = None, share: bool = True, **given: Any) -> Any:
        """Everything that Tidegate makes of this kernel for one target: a :class:`tidegate.runtime.compiled.Compiled`
        with ``plan``, ``tir``, ``cuda``, ``smem``, ``check()``, ``simulate()`` and calling.

        ``plan``: a producer's name, an AsyncPlan, or the path of a saved one. ``share=False`` keeps the bytes of all
        buffers apart.
        """
        from tidegate.runtime.compiled import compile_program

        multiples = given.pop("multiples", None)
        return compile_program(self.program(multiples, **given), target, plan, share)

    def smem(self, target: str | None = None, **given: Any) -> Any:
        """The shared memory report, in milliseconds and without compiling: bytes per buffer, peak, and the largest
        number of stages that fits."""
        from tidegate.runtime.compiled import smem_report

        return smem_report(self, target, given)

    def __call__(self, *arrays: Any, **given: Any) -> None:
        """Runs the kernel on the arrays' device and current stream; compiles on first use."""
        from tidegate.runtime.call import call

        call(self, arrays, given)


@overload
def kernel(function: Callable[..., Any]) -> Kernel: ...
@overload
def kernel(*, warps: int = DEFAULT_WARPS) -> Callable[[Callable[..., Any]], Kernel]: ...


def kernel(function: Callable[..., Any] | None = None, *, warps: int = DEFAULT_WARPS) -> Any:
    """Makes a :class:`Kernel` of a function over tiles. ``warps``: warps per CTA unless given when compiling."""
    if function is None:
        return lambda f: Kernel(f, warps)
    return Kernel(function, warps)
