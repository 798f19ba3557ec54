"""The kernel object: what ``@tg.kernel`` returns."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, overload

from tidegate.errors import BadCall, NoSource, UnknownConstant, WrongOccupancy, WrongWarps
from tidegate.ir import hir
from tidegate.lang.values import key_of, keys_of
from tidegate.span import calling

if TYPE_CHECKING:
    from tidegate.ir.dtypes import DType
    from tidegate.lang.source import Signature, Source

DEFAULT_WARPS = 4

STRIDE_MULTIPLE = 16
"""Elements that are taken to divide the strides of a tensor with gaps, unless it is said otherwise."""


class Kernel:
    """A kernel: callable on arrays, and the way to its plan, its text forms and its CUDA.

    Keyword-only parameters of the function are compile-time constants; every method that compiles takes them, and
    ``warps``, ``ctas_per_sm`` and the names of dimensions (sizes in elements), as keyword arguments. What the text of
    the kernel does wrong is refused by the first method that needs it, at its line (TG1xx, TG2xx); TG107 is for a
    keyword that fits nothing.
    """

    def __init__(
        self, function: Callable[..., Any], warps: int = DEFAULT_WARPS, ctas_per_sm: int | None = None
    ) -> None:
        if not isinstance(function, FunctionType):
            name = getattr(function, "__name__", repr(function))
            raise NoSource(kernel=name, reason=f"it is a {type(function).__name__}, not a function made by def")
        functools.update_wrapper(self, function)
        self.function = function
        self.name = function.__name__
        self.warps = warps
        self.ctas_per_sm = ctas_per_sm
        self.launches: dict[Any, Any] = {}
        self.fitting: dict[Any, Any] = {}
        self.compiled: dict[Any, Any] = {}
        self._launch: Callable[..., None] | None = None  # a plain attribute: found faster than a cached property

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
        self._only_constants(unknown)
        if unknown:
            raise UnknownConstant(
                what=f"kernel {self.name} has no constant or dimension {unknown[0]!r}",
                advice=f"it has {', '.join((*known, *self.dims, 'warps', 'ctas_per_sm'))}",
            )
        merged = {**known, **given}
        missing = [name for name, value in merged.items() if value is REQUIRED]
        if missing:
            raise UnknownConstant(
                self.source.header(),
                what=f"the constant {missing[0]!r} of kernel {self.name} has no value",
                advice=f"give {missing[0]}=..., or a default in the signature",
            )
        for name, value in merged.items():
            _hashable(name, value)
        return merged

    def _only_constants(self, names: Iterable[str]) -> None:
        """Raises UnknownConstant for a keyword that names a positional parameter."""
        order = self.signature.order
        for name in names:
            if name in order:
                what = f"{name} is a parameter of kernel {self.name}, and only constants are given by keyword"
                raise UnknownConstant(what=what, advice=f"pass arrays and numbers in order: {', '.join(order)}")

    @functools.cached_property
    def dims(self) -> tuple[str, ...]:
        """Names of the run-time dimensions, in order of appearance."""
        constants = dict(self.signature.constants)
        names = (s for _, kind, _ in self.signature.tensors for s in kind.shape if isinstance(s, str))
        return tuple(dict.fromkeys(n for n in names if n not in constants))

    @functools.cached_property
    def scalars(self) -> dict[str, DType]:
        """The parameters that are numbers."""
        from tidegate.ir.dtypes import DTYPES

        return {name: DTYPES[kind.dtype] for name, kind, _ in self.signature.scalars}

    def with_sizes(self, arrays: Sequence[Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """``given``, and the constants that are sizes of tensors as the arrays have them."""
        found = dict(given)
        constants = dict(self.signature.constants)
        for (_, kind, _), array in zip(self.signature.tensors, arrays, strict=False):
            shape = getattr(array, "shape", ())
            if len(shape) == len(kind.shape):
                for name, size in zip(kind.shape, shape, strict=True):
                    if name in constants and size:
                        found.setdefault(str(name), int(size))
        return found

    def program(self, multiples: Mapping[str, int] | None = None, **given: Any) -> hir.Program:
        """The HIR for these constants and sizes. ``multiples``: what divides the sizes that are not given."""
        strided = self.strided(given.pop("strided", ()))
        from tidegate.lang.parser import parse
        from tidegate.lang.source import whole

        warps = given.pop("warps", self.warps)
        count = whole(warps)
        if count is None or count < 1 or count > 32 or count & (count - 1):
            power = 1 << (min(max(count, 1), 32) - 1).bit_length() if count is not None else DEFAULT_WARPS
            raise WrongWarps(self.source.header(), warps=repr(warps), nearest=power)
        ctas = given.pop("ctas_per_sm", self.ctas_per_sm)
        if ctas is not None and whole(ctas) not in range(1, 33):
            raise WrongOccupancy(self.source.header(), ctas=repr(ctas))
        given = {name: value for name, value in given.items() if name not in self.dims or value is not None}
        sizes = {name: _size(name, given.pop(name), 0) for name in self.dims if name in given}
        divisors = self._multiples({} if multiples is None else multiples)
        return parse(self.source, self.signature, self.constants(given), sizes, divisors, strided, count, whole(ctas))

    def _multiples(self, multiples: Mapping[str, int]) -> dict[str, int]:
        """Checked: names of dimensions and positive numbers."""
        if not hasattr(multiples, "items") or not set(multiples) <= set(self.dims):
            raise UnknownConstant(
                what=f"multiples={multiples!r}: kernel {self.name} has the dimensions {', '.join(self.dims) or 'none'}",
                advice="give a dictionary of dimensions, e.g. multiples={'K': 16}",
            )
        return {name: _size(name, value, 1) for name, value in multiples.items()}

    def strided(self, given: Any) -> dict[str, int]:
        """The argument ``strided``: names of tensors, or a mapping from them. Checked: tensors of two or more axes, and
        what divides their strides but the last, in elements."""
        names = given.split(",") if isinstance(given, str) else given
        if not isinstance(names, Iterable):
            raise UnknownConstant(what=f"strided={given!r} is no list of tensors", advice="give their names: ('x',)")
        pairs = names.items() if isinstance(names, Mapping) else names
        found = dict(pair if isinstance(pair, tuple) and len(pair) == 2 else (pair, STRIDE_MULTIPLE) for pair in pairs)
        ranks = {name: len(kind.shape) for name, kind, _ in self.signature.tensors}
        for name in found:
            if ranks.get(name, 0) < 2:
                what = f"kernel {self.name} has no tensor {name!r}" if name not in ranks else f"{name} has one axis"
                known = ", ".join(n for n, rank in ranks.items() if rank > 1) or "none is"
                raise UnknownConstant(what=f"strided={given!r}: {what}", advice=f"tensors that may be: {known}")
        return {name: _size(name, multiple, 1) for name, multiple in found.items()}

    def captured(self) -> tuple[Any, ...]:
        """The values that the kernel reads from its module and enclosing functions now: compile-time values that no
        caller gives. What was compiled for others is not used again."""
        return tuple([key_of(names.get(name)) for names, name in self._captures])

    @functools.cached_property
    def _captures(self) -> tuple[tuple[Mapping[str, Any], str], ...]:
        """Where those values live: the names that the function's code loads, without modules and functions."""
        from tidegate.lang.source import Cells

        code = self.function.__code__
        asked: list[tuple[Mapping[str, Any], str]] = [(self.function.__globals__, name) for name in code.co_names]
        asked += [(Cells(self.function), name) for name in code.co_freevars]
        found = ((names, name, names.get(name)) for names, name in asked)
        none = (types.ModuleType, type(None))
        return tuple((names, name) for names, name, v in found if not callable(v) and not isinstance(v, none))

    # -------------------------------------------------------------------------------------- meaning

    def plain(self, *arguments: Any, **given: Any) -> None:
        """The NumPy meaning: fills the outputs among ``arguments`` (NumPy arrays, and numbers for scalars, in the order
        of the parameters). Raises TG701 for arguments that do not fit, TG714 for an integer beyond 32 bits."""
        from tidegate.ops.arguments import split
        from tidegate.ops.plain import run

        self._only_constants(given)
        arrays, _ = split(self.name, self.signature.order, self.scalars, arguments)
        run(self.program(**self.with_sizes(arrays, given)), arguments)

    # -------------------------------------------------------------------------------------- the way down

    def compile(self, target: str | None = None, *, plan: Any = None, share: bool = True, **given: Any) -> Any:
        """Everything that Tidegate makes of this kernel for one target: a :class:`tidegate.runtime.compiled.Compiled`
        with ``plan``, ``tir``, ``cuda``, ``smem``, ``check()``, ``simulate()`` and calling.

        ``plan``: a producer's name, or an AsyncPlan or the path of a saved one, which then tell the target.
        ``share=False`` keeps the bytes of all buffers apart. ``strided``: names of tensors whose rows need not follow
        one another in memory, or a mapping from them to what divides their strides, in elements (16).

        Raises TG304 for an unknown target, TG305 for an unknown producer, TG3xx for a schedule and TG401 for memory
        that the target does not have.
        """
        from tidegate.runtime.compiled import compile_program

        multiples = given.pop("multiples", None)
        program = self.program(multiples, **given)
        by_name = all(x is None or isinstance(x, str) for x in (target, plan))
        if not by_name or (plan and plan.endswith(".json")) or not isinstance(share, bool):
            return compile_program(program, target, plan, share)
        constants = {name: given.get(name, default) for name, default in self.signature.constants}
        # Equal requests share one result and what it has made so far.
        key = (program, self.captured(), *keys_of(constants), target, plan, share)
        if key not in self.compiled:
            self.compiled[key] = compile_program(program, target, plan, share)
        return self.compiled[key]

    def smem(self, target: str | None = None, **given: Any) -> Any:
        """The shared memory report, made in milliseconds and without compiling: bytes per buffer, peak per CTA, and the
        largest number of stages that fits."""
        from tidegate.runtime.compiled import smem_report

        return smem_report(self, target, given)

    def __call__(self, *arguments: Any, **given: Any) -> None:
        """Runs the kernel on the arrays' device and current stream; compiles on first use. Raises TG701 for arguments
        that do not fit, TG821 without a GPU, TG82x where the driver refuses."""
        if given:
            self._only_constants(given)
            given.pop("multiples", None)  # the arrays tell
            for name, value in given.items():
                _hashable(name, value)
        (self._launch or self._launcher())(arguments, given)

    def _launcher(self) -> Callable[..., None]:
        from tidegate.runtime.variants import caller_of

        self._launch = caller_of(self)
        return self._launch


def _hashable(name: str, value: Any) -> None:
    """Compiled kernels are looked up by their constants; raises UnknownConstant."""
    try:
        hash(value)
    except TypeError:
        raise UnknownConstant(
            what=f"the constant {name}={value!r} is not hashable", advice="give a tuple instead of a list or dictionary"
        ) from None


def _size(name: str, value: Any, least: int) -> int:
    """A size or multiple as an int; raises UnknownConstant."""
    from tidegate.lang.source import whole

    size = whole(value)
    if size is None or not least <= size < 2**31:
        raise UnknownConstant(
            what=f"{name}={value!r} is not a size", advice=f"give an integer of {least} or more, below 2**31"
        )
    return size


@overload
def kernel(function: Callable[..., Any]) -> Kernel: ...
@overload
def kernel(*, warps: int = DEFAULT_WARPS, ctas_per_sm: int | None = None) -> Callable[[Callable[..., Any]], Kernel]: ...


def kernel(function: Any = None, *, warps: int = DEFAULT_WARPS, ctas_per_sm: int | None = None, **unknown: Any) -> Any:
    """``@tg.kernel`` or ``@tg.kernel(warps=8)``: makes a :class:`Kernel` of a function over tiles, whose text is read
    and never executed.

    Unless given when compiling, ``warps``: warps per CTA, a power of two from 1 to 32; ``ctas_per_sm``: the most CTAs
    that share a multiprocessor, by default as many as fit. Raises TG105 for other arguments, TG103 for what has no
    text; what the function does wrong is refused where it is used.
    """
    if unknown:
        what = f"tg.kernel has no argument {next(iter(unknown))!r}, only warps and ctas_per_sm"
        raise BadCall(calling(1), what=what, advice="write @tg.kernel or @tg.kernel(warps=8)")
    if function is not None and not callable(function):
        what = f"@tg.kernel({function!r}): it takes no positional argument"
        raise BadCall(calling(1), what=what, advice="write @tg.kernel or @tg.kernel(warps=8)")
    if function is None:
        return lambda f: Kernel(f, warps, ctas_per_sm)
    return Kernel(function, warps, ctas_per_sm)
