"""What a command names: kernels in a Python file, or a TIR file."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tidegate.errors import FailingFile, NoKernel, Span, TidegateError, UnknownKernel, UnusableFile
from tidegate.ir import tir
from tidegate.lang.kernel import Kernel

MODULE = "__tidegate_file__"
"""The name under which a file runs: not ``__main__``, so that what stands behind that guard does not."""

LAUNCH = ("warps", "ctas_per_sm", "strided", "multiples")
"""What --set may give besides constants and sizes."""


@dataclass(frozen=True)
class Chosen:
    """The kernels that a command works on. ``named``: one was asked for by name; ``inputs``: the file's own;
    ``target``: what the file's kernels need where there is no GPU."""

    path: str
    named: bool
    kernels: tuple[Kernel, ...]
    inputs: Any
    target: str | None


def split(argument: str) -> tuple[str, str | None]:
    """FILE[:KERNEL]; a file whose name has a colon is still a file."""
    if ":" not in argument or os.path.exists(argument):
        return argument, None
    path, _, name = argument.rpartition(":")
    return path, name


def is_tir(argument: str) -> bool:
    return argument.endswith(".tir")


def read(path: str) -> bytes:
    """The bytes of a file; raises UnusableFile."""
    if not path:
        raise UnusableFile(path=path, reason="the file name is empty", advice="name a file, as FILE or FILE:KERNEL")
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        raise UnusableFile(path=path, reason=reason, advice="name a file that can be read") from None


def kernel_of_tir(path: str) -> tir.Kernel:
    """The kernel in a TIR file, its rules verified; raises UnusableFile, UnreadableTir, IllegalTir or UnknownTarget."""
    from tidegate.ir.spec import ensure
    from tidegate.ir.text import parse_kernel
    from tidegate.target.target import find

    try:
        text = read(path).decode()
    except UnicodeDecodeError as error:
        raise UnusableFile(path=path, reason=f"it is no UTF-8 text ({error})", advice="give a TIR text") from None
    kernel = parse_kernel(text, path)
    ensure(kernel, text, path)
    find(kernel.target)
    return kernel


def kernels_of(argument: str) -> Chosen:
    """The kernels that FILE[:KERNEL] names. Raises UnusableFile, FailingFile, NoKernel or UnknownKernel."""
    path, name = split(argument)
    if is_tir(path):
        advice = "`tidegate check`, `mutate`, `sanitize`, `tir` and `cuda` read TIR; this command needs a Python file"
        raise UnusableFile(path=path, reason="it is a TIR file", advice=advice)
    if path.endswith(".json"):
        advice = f"name the kernels' Python file, and give a saved plan by --plan {path}"
        raise UnusableFile(path=path, reason="it is a JSON file, not one of kernels", advice=advice)
    names = vars(load(path))
    found: dict[str, Kernel] = {}
    for variable, value in names.items():
        if isinstance(value, Kernel) and value not in found.values():
            found[variable] = value
    own = {n: k for n, k in found.items() if k.function.__code__.co_filename == path}
    if not found:
        raise NoKernel(path=path)
    target = names.get("target")
    rest = names.get("inputs"), target if isinstance(target, str) else None
    if name is None:
        return Chosen(path, False, tuple((own or found).values()), *rest)
    chosen = found.get(name) or next((k for k in found.values() if k.name == name), None)
    if chosen is None:
        raise UnknownKernel(path=path, name=name, known=", ".join(own or found))
    return Chosen(path, True, (chosen,), *rest)


def load(path: str) -> ModuleType:
    """Executes a Python file; what it prints goes to stderr. Raises UnusableFile or FailingFile."""
    source = read(path)
    module = ModuleType(MODULE)
    module.__file__ = path
    sys.modules[MODULE] = module  # dataclasses and pickle look their module up
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    before, sys.argv = sys.argv, [path]
    try:
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(source, path, "exec", dont_inherit=True), vars(module))
    except TidegateError as error:
        raise error if error.span else type(error)(place_of(error, path), error.related, **error.fields) from None
    except (Exception, SystemExit) as error:
        raise FailingFile(place_of(error, path), path=path, exception=describe(error)) from None
    finally:
        sys.argv = before
    return module


def describe(error: BaseException) -> str:
    """The exception as Python names it, on one line."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg}"
    return " ".join(traceback.format_exception_only(error)[-1].split())


def place_of(error: BaseException, path: str) -> Span | None:
    """The line of the file at ``path`` where ``error`` came up."""
    if isinstance(error, SyntaxError) and error.filename == path and error.lineno:
        start = max((error.offset or 1) - 1, 0)
        end = (error.end_offset or 0) - 1 if error.end_lineno == error.lineno else start + 1
        return Span(path, error.lineno, start, max(end, start + 1), line_of(path, error.lineno))
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == path and f.lineno]
    if not frames:
        return None
    last = frames[-1]
    text = line_of(path, last.lineno or 1)
    return Span(path, last.lineno or 1, len(text) - len(text.lstrip()), len(text.rstrip()), text)


def line_of(path: str, number: int) -> str:
    import linecache

    return linecache.getline(path, number).rstrip("\n")


def constants_known(kernel: Kernel) -> Mapping[str, None]:
    """The names that --set may give for a kernel."""
    constants = (name for name, _ in kernel.signature.constants)
    return dict.fromkeys((*constants, *kernel.dims, *kernel.scalars, *LAUNCH))
