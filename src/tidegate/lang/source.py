"""The source of a kernel: syntax tree, spans, and the names visible at compile time."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.errors import BadSignature, CompileTimeFailure, NoSource, Span, TidegateError, UnknownName
from tidegate.lang.surface import TensorType


@dataclass(frozen=True)
class Source:
    """The parsed function and where its text stands."""

    name: str
    file: str
    lines: tuple[str, ...]
    first_line: int
    indent: int
    tree: ast.FunctionDef
    names: Mapping[str, Any]

    def span(self, node: ast.AST) -> Span:
        """The place of a node in the author's file."""
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0)
        end = getattr(node, "end_col_offset", column + 1) if getattr(node, "end_lineno", line) == line else None
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        stop = end if end is not None else len(text)
        return Span(
            self.file, self.first_line + line - 1, column + self.indent, stop + self.indent, " " * self.indent + text
        )


def read(function: Callable[..., Any]) -> Source:
    """The source of ``function``.

    Raises NoSource if there is none (made by exec, or typed into a plain prompt).
    """
    name = function.__name__
    try:
        raw, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or "<unknown>"
    except (OSError, TypeError) as error:
        raise NoSource(kernel=name, reason=str(error)) from None
    text = textwrap.dedent("".join(raw))
    indent = len(raw[0]) - len(raw[0].lstrip())
    try:
        tree = ast.parse(text).body[0]
    except (SyntaxError, IndexError) as error:
        raise NoSource(kernel=name, reason=f"its text does not parse ({error})") from None
    if not isinstance(tree, ast.FunctionDef):
        raise NoSource(kernel=name, reason="it is not a def statement")
    closure = inspect.getclosurevars(function)
    names = {**closure.builtins, **function.__globals__, **closure.nonlocals}
    return Source(name, file, tuple(text.splitlines()), first, indent, tree, names)


@dataclass(frozen=True)
class Signature:
    """Tensor parameters and compile-time constants (with their defaults; ``REQUIRED`` if there is none)."""

    tensors: tuple[tuple[str, TensorType, Span], ...]
    constants: tuple[tuple[str, Any], ...]


REQUIRED = inspect.Parameter.empty


def signature(source: Source, function: Callable[..., Any]) -> Signature:
    """Reads the parameters; raises BadSignature."""
    arguments = source.tree.args
    for extra in (arguments.vararg, arguments.kwarg):
        if extra:
            raise BadSignature(
                source.span(extra),
                what=f"{extra.arg!r} collects arguments; a kernel names each of them",
                advice="list the tensors and the keyword-only constants",
            )
    tensors = []
    for argument in (*arguments.posonlyargs, *arguments.args):
        span = source.span(argument)
        kind = _annotation(source, argument, function.__annotations__.get(argument.arg), span)
        tensors.append((argument.arg, kind, span))
    parameters = inspect.signature(function).parameters
    for name, parameter in parameters.items():
        if parameter.kind is not parameter.KEYWORD_ONLY and parameter.default is not REQUIRED:
            raise BadSignature(
                what=f"tensor parameter {name!r} has a default value",
                advice="put compile-time constants behind a '*', as keyword-only parameters",
            )
    constants = tuple(
        (name, parameter.default) for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY
    )
    return Signature(tuple(tensors), constants)


def _annotation(source: Source, argument: ast.arg, value: Any, span: Span) -> TensorType:
    if isinstance(value, str):
        try:
            value = eval(value, dict(source.names))
        except TidegateError as error:
            raise type(error)(span, (), **error.fields) from None
        except Exception:
            value = None
    if not isinstance(value, TensorType):
        raise BadSignature(
            span,
            what=f"positional parameter {argument.arg!r} is not annotated as a tensor",
            advice='annotate it, e.g. tg.Tensor["M", "K", "bf16"], or put it behind a \'*\' as a constant',
        )
    return value


def evaluate(source: Source, node: ast.expr, constants: Mapping[str, Any]) -> Any:
    """The compile-time value of an expression; raises UnknownName or CompileTimeFailure at its place."""
    code = compile(ast.fix_missing_locations(ast.Expression(node)), source.file, "eval")
    try:
        return eval(code, {**source.names, **constants})
    except TidegateError as error:
        raise type(error)(source.span(node), error.related, **error.fields) from None
    except NameError as error:
        raise UnknownName(
            source.span(node), name=error.name, why="", advice="define it before, or make it a keyword-only constant"
        ) from None
    except Exception as error:
        raise CompileTimeFailure(
            source.span(node), expression=ast.unparse(node), exception=f"{type(error).__name__}: {error}"
        ) from None
