"""Calling a kernel: arrays that have been seen, where they have been seen, launch after one look-up.

What a first call has checked and packed is kept under all that it depends on, addresses included, and is never changed,
so that threads share it. What remains of a later call is to read what its arrays are now, one look-up, the current
stream, and the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tidegate.runtime import others
from tidegate.runtime.arrays import Described
from tidegate.runtime.prepared import Prepared, Ready

MOST = 4096
"""Calls that are remembered per kernel."""

POINTER_ALIGN = 16
"""Bytes: what a kernel may rely on in an address."""

T = TypeVar("T")
Call = Callable[..., None]
Key = tuple[Any, ...]


READ = ("{0}.data_ptr()", "{0}.dtype", "{0}.shape", "{0}.get_device()", "{0}.is_contiguous() or {0}.stride()")
"""What a launch depends on of a torch tensor, the address first."""


def reader(count: int) -> Callable[..., Key]:
    """A function of ``count`` tensors that makes one flat tuple of all that is READ of them. It is written out, since a
    loop over the tensors with a tuple of each takes a third more of a call's time."""
    names = [f"tensor_{i}" for i in range(count)]
    items = [item.format(name) for name in names for item in READ]
    read: Callable[..., Key] = eval(f"lambda {', '.join(names)}: ({', '.join(items)}{',' * bool(items)})")
    return read


def caller(
    count: int,
    describe: Callable[[Sequence[Any]], list[Described]],
    prepare: Callable[[Sequence[Described], Mapping[str, Any]], Prepared],
    captured: Callable[[], Key] | None = None,
) -> Call:
    """A function that launches on ``count`` arrays, with constants and with the launch values that change from call to
    call.

    It takes the short way with torch tensors: objects that have ``data_ptr`` and the rest. ``prepare``: checks arrays,
    compiles for them and loads what they need, regardless of addresses but for their last bits. ``captured``: what
    compiled code depends on besides.
    """
    ready: dict[Key, Ready] = {}
    prepared: dict[Key, Prepared] = {}
    read, fields = reader(count), len(READ)

    def call(arrays: Sequence[Any], given: Mapping[str, Any], more: Sequence[int] = ()) -> None:
        try:
            key = read(*arrays)
        except (AttributeError, RuntimeError, TypeError):
            other(arrays, given, more)
            return
        if given:
            key += tuple(given.items())
        if captured is not None:
            key += captured()
        found = ready.get(key) or first(key, arrays, given)
        stream = found.stream(found.index)
        if more or (found.current is not None and found.current() != found.index):
            found.launch(stream, more, found.current is not None)
        elif found.start(found.configs[stream], found.function, found.parameters, None):
            found.launch(stream)

    def first(key: Key, arrays: Sequence[Any], given: Mapping[str, Any]) -> Ready:
        """A call with tensors that are new, or at new addresses."""
        pointers = key[: count * fields : fields]
        kind = list(key)
        kind[: count * fields : fields] = [p % POINTER_ALIGN for p in pointers]
        known = prepared.get(tuple(kind)) or remember(prepared, tuple(kind), prepare(describe(arrays), given))
        return remember(ready, key, known.at(pointers))

    def other(arrays: Sequence[Any], given: Mapping[str, Any], more: Sequence[int]) -> None:
        """A call with arrays of other kinds."""
        described = describe(arrays)
        kinds = (replace(d, pointer=d.pointer % POINTER_ALIGN, stream=None) for d in described)
        kind = (*kinds, *given.items(), captured and captured())
        known = prepared.get(kind) or remember(prepared, kind, prepare(described, given))
        others.run(known, arrays, described, more)

    return call


def remember(known: dict[Key, T], key: Key, value: T) -> T:
    """Adds to a dictionary that forgets all when it is full: threads may read it meanwhile."""
    if len(known) >= MOST:
        known.clear()
    known[key] = value
    return value
