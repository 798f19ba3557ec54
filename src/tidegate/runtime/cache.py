"""A content-addressed disk cache for compiled kernels.

An entry is a file named by the hash of everything that it depends on. It is written beside its place and moved there in
one step, so that processes that compile the same kernel at once do not disturb each other; a checksum tells an entry
that was cut off or changed, which then counts as absent. A cache that cannot be written is no cache, and no error.
"""

from __future__ import annotations

import hashlib
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MAGIC = b"tidegate cubin 1\n"
DIGEST = 32


@dataclass(frozen=True)
class Entry:
    """A compiled kernel and the compiler's log."""

    code: bytes
    log: str


def directory() -> Path | None:
    """Where entries are: TIDEGATE_CACHE_DIR, else tidegate/ in the user's cache directory; None where there is none."""
    if chosen := os.environ.get("TIDEGATE_CACHE_DIR"):
        return Path(chosen)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "tidegate"
    try:
        return Path.home() / ".cache" / "tidegate"
    except RuntimeError:  # no home directory
        return None


def key_of(*parts: str) -> str:
    """The name of the entry that depends on ``parts`` and on nothing else."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def path_of(key: str) -> Path | None:
    root = directory()
    return root / key[:2] / f"{key}.cubin" if root else None


def read(key: str) -> Entry | None:
    """The entry, or None where there is no valid one."""
    path = path_of(key)
    if path is None:
        return None
    try:
        data = path.read_bytes()
    except OSError:
        return None
    start = len(MAGIC) + DIGEST
    body = data[start:]
    if not data.startswith(MAGIC) or hashlib.sha256(body).digest() != data[len(MAGIC) : start]:
        return None
    size = int.from_bytes(body[:8], "little")
    return Entry(body[8 + size :], body[8 : 8 + size].decode())


def write(key: str, entry: Entry) -> Path | None:
    """Stores the entry; returns its path, or None where it could not be stored."""
    log = entry.log.encode()
    body = len(log).to_bytes(8, "little") + log + entry.code
    path = path_of(key)
    return path if path and replace(path, MAGIC + hashlib.sha256(body).digest() + body) else None


def replace(path: Path, data: bytes) -> bool:
    """Writes the file in one step: nobody sees a part of it. False where that is not possible."""
    import tempfile  # slow to import, and a cache hit writes nothing

    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        if temporary:
            with suppress(OSError):
                os.unlink(temporary)
        return False
    return True


@cache
def installed(distribution: str) -> str | None:
    """Version of an installed distribution, by the name of its metadata directory.

    The same as importlib.metadata.version, without importing the parsers that it needs: a cache hit must stay cheap.
    """
    prefix = distribution.replace("-", "_").lower() + "-"
    for place in sys.path:
        try:
            names = os.listdir(place or ".")
        except OSError:
            continue
        for name in names:
            if name.endswith(".dist-info") and name.lower().startswith(prefix):
                return name[len(prefix) : -len(".dist-info")]
    return None
