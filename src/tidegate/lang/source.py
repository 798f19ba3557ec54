"""The source of a kernel: syntax tree, spans, and the names visible at compile time."""

from __future__ import annotations

import ast
import builtins
import difflib
import inspect
import keyword
import numbers
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, cast

from tidegate.errors import BadSignature, CompileTimeFailure, NoSource, Span, TidegateError, UnknownName
from tidegate.lang.advice import instead_of
from tidegate.lang.scope import Scope
from tidegate.lang.surface import Annotation, Scalar, ScalarType, Tensor, TensorType


@dataclass(frozen=True)
class Source:
    """The parsed function and where its text stands. Node lines are those of the file; ``lines`` starts at the file's
    line ``first_line``. ``names``: what the function sees of its module and of enclosing functions."""

    name: str
    file: str
    lines: tuple[str, ...]
    first_line: int
    tree: ast.FunctionDef
    names: ChainMap[str, Any]

    def span(self, node: ast.AST) -> Span:
        """The place of a node in the author's file."""
        line = getattr(node, "lineno", self.first_line)
        text = self.lines[line - self.first_line] if 0 <= line - self.first_line < len(self.lines) else ""
        column = _characters(text, getattr(node, "col_offset", 0))
        end = len(text)
        if getattr(node, "end_lineno", line) == line:
            end = _characters(text, getattr(node, "end_col_offset", column + 1))
        return Span(self.file, line, column, end, text)

    def header(self) -> Span:
        """The place of the def line, up to the parameters."""
        whole = self.span(self.tree)
        return replace(whole, end_column=whole.column + len(f"def {self.name}"))


def _characters(text: str, offset: int) -> int:
    """The syntax tree counts columns in bytes of UTF-8."""
    return len(text.encode()[:offset].decode(errors="replace"))


def read(function: Callable[..., Any]) -> Source:
    """The source of ``function``.

    Raises NoSource if there is none (made by exec, or typed into a plain prompt).
    """
    name = getattr(function, "__name__", repr(function))
    if not inspect.isfunction(function):
        raise NoSource(kernel=name, reason=f"it is a {type(function).__name__}, not a function made by def")
    try:
        raw, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or "<unknown>"
    except (OSError, TypeError) as error:
        raise NoSource(kernel=name, reason=str(error)) from None
    # An indented function keeps its columns when it is read as the body of an if.
    nested = raw[0][:1].isspace()
    try:
        tree: ast.AST = ast.parse(("if True:\n" if nested else "") + "".join(raw)).body[0]
        tree = tree.body[0] if isinstance(tree, ast.If) else tree
    except (SyntaxError, IndexError, RecursionError, MemoryError) as error:
        raise NoSource(kernel=name, reason=f"its text does not parse ({error})") from None
    if not isinstance(tree, ast.FunctionDef) or tree.name != name:
        raise NoSource(kernel=name, reason="it is not a plain def statement")
    ast.increment_lineno(tree, first - 1 - nested)
    lines = tuple(line.rstrip("\r\n") for line in raw)
    return Source(name, file, lines, first, tree, _names(function))


def _names(function: Callable[..., Any]) -> ChainMap[str, Any]:
    """A live view of what the function's body can see: enclosing functions, the module, builtins."""
    enclosing = cast("MutableMapping[str, Any]", Cells(function))  # nobody writes to it
    return ChainMap(enclosing, function.__globals__, vars(builtins))


class Cells(Mapping[str, Any]):
    """The variables of enclosing functions that a function uses, as they are now; without those not yet assigned."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def __getitem__(self, name: str) -> Any:
        try:
            return self._cells[name].cell_contents
        except ValueError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._cells if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True)
class Signature:
    """Tensor and scalar parameters, and compile-time constants (with their defaults; ``REQUIRED`` if there is none).
    ``order``: the names of the positional parameters."""

    tensors: tuple[tuple[str, TensorType, Span], ...]
    constants: tuple[tuple[str, Any], ...]
    scalars: tuple[tuple[str, ScalarType, Span], ...] = ()
    order: tuple[str, ...] = ()


REQUIRED = inspect.Parameter.empty

PACKAGE = __name__.partition(".")[0]

RESERVED = frozenset({"self", "target", "plan", "share", "multiples", "strided", "warps", "ctas_per_sm"})
"""Keyword arguments of compile, which no constant and no dimension may be named after."""


def is_name(text: str) -> bool:
    """May a parameter, dimension or index have this name? It goes into TIR, CUDA text and keyword arguments."""
    return is_tir_name(text) and not keyword.iskeyword(text) and text not in RESERVED


def is_tir_name(text: str) -> bool:
    """Is it a name in TIR text?"""
    return text.isascii() and text.isidentifier() and text not in ("inf", "nan")


def whole(value: Any) -> int | None:
    """The value as an int if it is a whole number (NumPy's count, bool does not), else None."""
    number: object = value
    if isinstance(number, bool):
        return None
    return int(value) if isinstance(value, numbers.Integral) else None


def signature(source: Source, function: Callable[..., Any]) -> Signature:
    """Reads the parameters; raises BadSignature."""
    arguments = source.tree.args
    if not is_tir_name(source.name):
        raise BadSignature(
            source.header(), what=f"a kernel cannot be named {source.name!r}", advice="use an ASCII identifier"
        )
    for extra in (arguments.vararg, arguments.kwarg):
        if extra:
            raise BadSignature(
                source.span(extra),
                what=f"{extra.arg!r} collects arguments; a kernel names each of them",
                advice="list the tensors and the keyword-only constants",
            )
    tensors: list[tuple[str, TensorType, Span]] = []
    scalars: list[tuple[str, ScalarType, Span]] = []
    positional, keywords = (*arguments.posonlyargs, *arguments.args), arguments.kwonlyargs
    for argument in (*positional, *keywords):
        if not is_name(argument.arg) and (argument.arg != "self" or argument in keywords):
            raise BadSignature(
                source.span(argument),
                what=f"a parameter cannot be named {argument.arg!r}",
                advice=f"use an ASCII identifier other than {', '.join(sorted(RESERVED))}",
            )
    if arguments.defaults:
        raise BadSignature(
            source.span(arguments.defaults[0]),
            what=f"positional parameter {positional[-len(arguments.defaults)].arg!r} has a default value",
            advice="put compile-time constants behind a '*', as keyword-only parameters",
        )
    for argument in positional:
        span = source.span(argument)
        kind = _annotation(source, argument, function.__annotations__.get(argument.arg), span)
        if isinstance(kind, ScalarType):
            scalars.append((argument.arg, kind, span))
        else:
            tensors.append((argument.arg, kind, span))
    parameters = inspect.signature(function).parameters
    constants = tuple(
        (name, parameter.default) for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY
    )
    return Signature(tuple(tensors), constants, tuple(scalars), tuple(a.arg for a in positional))


def _annotation(source: Source, argument: ast.arg, value: Any, span: Span) -> TensorType | ScalarType:
    for _ in range(2):  # a string under `from __future__ import annotations` is one of a string
        if isinstance(value, str):
            try:
                value = eval(value, dict(source.names))
            except TidegateError as error:
                raise type(error)(span, (), **error.fields) from None
            except Exception:
                value = None
    if not isinstance(value, (TensorType, ScalarType)):
        raise _not_annotated(argument, value, span)
    return value


def _not_annotated(argument: ast.arg, value: Any, span: Span) -> BadSignature:
    what = f"positional parameter {argument.arg!r} is not annotated as a tensor or scalar"
    constant = "or put it behind a '*' as a compile-time constant"
    advice = f"annotate it, e.g. {Tensor.example} or {Scalar.example}, {constant}"
    if isinstance(value, type) and issubclass(value, Annotation):
        missing = "dtype" if value is Scalar else "sizes and dtype"
        what = f"the annotation tg.{value.__name__} of {argument.arg!r} does not say its {missing}"
        advice = f"write {argument.arg}: {value.example}"
    elif value in (int, float, bool):
        what = (
            f"positional parameter {argument.arg!r} is annotated {value.__name__}, and a kernel's numbers have a dtype"
        )
        advice = f'write {argument.arg}: tg.Scalar["{"f32" if value is float else "i32"}"], {constant}'
    elif argument.annotation is None:
        what = f"positional parameter {argument.arg!r} has no annotation"
    return BadSignature(span, what=what, advice=advice)


def evaluate(source: Source, node: ast.expr, scope: Scope) -> Any:
    """The compile-time value of an expression; raises UnknownName or CompileTimeFailure at its place."""
    try:
        code = compile(ast.fix_missing_locations(ast.Expression(node)), source.file, "eval")
        visible = ChainMap(dict(scope.constants()), *source.names.maps)
        used = (n.id for n in ast.walk(node) if isinstance(n, ast.Name))
        return eval(code, {name: visible[name] for name in used if name in visible})
    except TidegateError as error:
        raise type(error)(source.span(node), error.related, **error.fields) from None
    except NameError as error:
        raise unknown(source, node, str(error.name), scope) from None
    except AttributeError as error:
        raise missing(source, node, error) or failure(source, node, error) from None
    except (Exception, SystemExit) as error:
        raise failure(source, node, error) from None


def failure(source: Source, node: ast.expr, error: BaseException) -> CompileTimeFailure:
    exception = f"{type(error).__name__}: {error}"
    return CompileTimeFailure(source.span(node), expression=ast.unparse(node), exception=exception)


def missing(source: Source, node: ast.expr, error: AttributeError) -> UnknownName | None:
    """The refusal of a name that a module does not have, where the expression itself asks the module for it."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr == error.name and isinstance(error.obj, ModuleType):
            name, module = ast.unparse(part), error.obj
            known = [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
            near = difflib.get_close_matches(part.attr, dir(module), 1)
            advice = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(known) or 'its names'}"
            if module.__name__ == PACKAGE:
                advice = instead_of(name, dir(module))
            why = f": the module {error.obj.__name__} has no {part.attr!r}"
            return UnknownName(source.span(part), name=name, why=why, advice=advice)
    return None


def unknown(source: Source, node: ast.expr, name: str, scope: Scope) -> UnknownName:
    """The refusal of a name that nothing defines, with what its author may have meant."""
    place = next((n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name), node)
    why, advice = "", "define it before, or make it a keyword-only constant"
    if name in scope.dims:
        why, advice = " as a value: it is the name of a dimension", f"write its size as tg.size({name!r})"
    elif near := difflib.get_close_matches(name, scope.bindings, 1):
        advice = f"did you mean {near[0]!r}? Else {advice}"
    return UnknownName(source.span(place), name=name, why=why, advice=advice)
