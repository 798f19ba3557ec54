"""CUDA C++ to a cubin by NVRTC, the compiler that comes as a wheel: no toolkit and no GPU are needed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.errors import CompileFailed, NoCompiler
from tidegate.runtime import cache

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a")
"""What kernels are compiled for and tested with; NVRTC may know more."""

# Without contraction to fma every operation rounds once, as in NumPy. ptxas -v puts registers and spills in the log.
OPTIONS = ("-std=c++17", "--fmad=false", "--ptxas-options=-v")

LINE_INFO = "--generate-line-info"
"""Leaves the code as it is, and adds a table from instructions to lines of the text."""

COMPILER = "nvidia-cuda-nvrtc"


@dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture. ``log`` is the compiler's, ``key`` names the cache entry."""

    code: bytes
    arch: str
    key: str
    log: str
    from_cache: bool

    def __repr__(self) -> str:
        name = re.search(r"entry function '(\w+)'", self.log)
        return f"<tidegate cubin{f' of {name.group(1)}' if name else ''} for {self.arch}, {len(self.code)} bytes>"

    @property
    def registers(self) -> int:
        """Registers per thread."""
        return self._number(r"Used (\d+) registers")

    @property
    def spills(self) -> int:
        """Bytes per thread that did not fit into registers."""
        return self._number(r"(\d+) bytes spill stores")

    def _number(self, pattern: str) -> int:
        found = re.search(pattern, self.log)
        return int(found.group(1)) if found else 0


def cubin(source: str, arch: str, file: str = "") -> Cubin:
    """Compiles CUDA C++ for ``arch`` ("sm_80" ... "sm_90a"), or takes the result from the disk cache. With ``file``,
    the code carries line information under that file name, for the tools that report places.

    The cache is keyed by the text, the architecture, the options and the versions of NVRTC and Tidegate. Raises
    NoCompiler without NVRTC, and CompileFailed, with the text and the log kept in a file, when it rejects the text.
    """
    options = (*OPTIONS, *((LINE_INFO, file) if file else ()))
    key = cache.key_of(source, arch, *options, *(cache.installed(d) or "" for d in (COMPILER, "tidegate")))
    if entry := cache.read(key):
        return Cubin(entry.code, arch, key, entry.log, from_cache=True)
    code, log = _compile(source, arch, key, file)
    cache.write(key, cache.Entry(code, log))
    return Cubin(code, arch, key, log, from_cache=False)


def _compile(source: str, arch: str, key: str, file: str) -> tuple[bytes, str]:
    nvrtc = _nvrtc()
    name = file.encode() or b"kernel.cu"
    program = _value(nvrtc, nvrtc.nvrtcCreateProgram(source.encode(), name, 0, [], []))
    try:
        options = [
            f"--gpu-architecture={arch}".encode(),
            *(o.encode() for o in OPTIONS),
            *([LINE_INFO.encode()] if file else []),
        ]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _text(nvrtc, program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode(errors="replace")
        log = log.rstrip("\0\n ")
        if status:
            raise _failure(source, arch, key, log or str(status))
        return _text(nvrtc, program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _nvrtc() -> Any:
    """The NVRTC bindings, with the library loaded."""
    if cache.installed(COMPILER) is None:
        raise NoCompiler(reason=f"the package {COMPILER} is not installed")
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()  # loads the library
    except ImportError as error:
        raise NoCompiler(reason=f"the package cuda-bindings is not installed ({error})") from error
    except RuntimeError as error:
        raise NoCompiler(reason=f"its library does not load ({error})") from error
    return nvrtc


def _value(nvrtc: Any, result: tuple[Any, ...]) -> Any:
    if result[0]:
        raise NoCompiler(reason=f"it reports {result[0]}")
    return result[1]


def _text(nvrtc: Any, program: Any, size: Any, get: Any) -> bytes:
    buffer = bytes(_value(nvrtc, size(program)))
    get(program, buffer)
    return buffer


def _failure(source: str, arch: str, key: str, log: str) -> CompileFailed:
    """The error, after keeping text and log for whoever looks into it."""
    import tempfile

    comment = "\n".join(f"// {line}" for line in log.splitlines())
    kept = f"{source}\n// The compiler's log, for {arch}:\n{comment}\n".encode()
    root = cache.directory()
    path = (root or Path()) / "failed" / f"{key[:16]}.cu"
    if root is None or not cache.replace(path, kept):
        path = Path(tempfile.gettempdir()) / f"tidegate-{key[:16]}.cu"
        cache.replace(path, kept)
    first = next((line for line in log.splitlines() if "error" in line), log.splitlines()[0])
    return CompileFailed(first=first, arch=arch, path=path)
