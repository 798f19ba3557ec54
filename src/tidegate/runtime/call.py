"""Calling a kernel: arrays that have been seen, where they have been seen, launch after one comparison and one look-up.

What a first call has checked and packed is kept under all that it depends on, addresses included, and is never changed,
so that threads share it. What remains of a later call is one look-up by the addresses of its arrays, to compare what
these arrays are now with those of the last call there, the current stream, and the driver.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tidegate.lang.values import keys_of
from tidegate.runtime import others
from tidegate.runtime.arrays import Described
from tidegate.runtime.prepared import Prepared, Ready

MOST_KINDS = 256
"""Kinds of calls that are remembered per kernel."""

MOST = 4096
"""Calls that are remembered per kind, and places of calls per kernel."""

POINTER_ALIGN = 16
"""Bytes: what a kernel may rely on in an address."""

T = TypeVar("T")
Call = Callable[..., None]
Key = tuple[Any, ...]

ADDRESS = ("{0}.data_ptr()",)
PROPERTIES = ("{0}.dtype", "{0}.shape", "{0}.get_device()", "{0}.is_contiguous() or {0}.stride()")
"""What a launch depends on of a torch tensor."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Calls that differ in addresses alone. ``fits``: whether tensors have the properties of those before;
    ``constants``: the same constants; ``prepared``: by what the addresses are beyond a multiple of POINTER_ALIGN;
    ``ready``: by the addresses."""

    fits: Callable[..., bool]
    constants: Key
    prepared: dict[Key, Prepared] = field(default_factory=dict)
    ready: dict[Key, Ready] = field(default_factory=dict)


def reader(count: int, items: Sequence[str]) -> Callable[..., Key]:
    """A function of ``count`` tensors that makes one flat tuple of the items of each. It is written out, since a loop
    over the tensors with a tuple of each takes a third more of a call's time."""
    names = [f"tensor_{i}" for i in range(count)]
    filled = [item.format(name) for name in names for item in items]
    read: Callable[..., Key] = eval(f"lambda {', '.join(names)}: ({', '.join(filled)}{',' * bool(filled)})")
    return read


def likeness(tensors: Sequence[Any], read: Callable[..., Key]) -> Callable[..., bool]:
    """A function that tells whether tensors have what ``read`` reads in common with these.

    The guards of torch.compile compare all of it, and more, in a third of the time that Python takes. They are not
    public: where they are missing, or do not accept the very tensors that they are made of (one tensor that is passed
    twice), Python compares.
    """
    try:
        guards = sys.modules["torch"]._C._dynamo.guards.TensorGuards
        sizes, strides = [list(t.shape) for t in tensors], [list(t.stride()) for t in tensors]
        fits: Callable[..., bool] = guards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        if fits(*tensors):
            return fits
    except Exception:  # whatever another version of torch makes of it
        pass
    known = read(*tensors)
    return lambda *others: read(*others) == known


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
    kinds: dict[Key, Kind] = {}
    places: dict[Key, tuple[Kind, Ready | None]] = {}
    strangers: dict[Key, Prepared] = {}
    addresses, properties = reader(count, ADDRESS), reader(count, PROPERTIES)
    nowhere = Kind(lambda *tensors: False, ()), None

    def call(arrays: Sequence[Any], given: Mapping[str, Any], more: Sequence[int] = ()) -> None:
        constants: Key = keys_of(given) if given else ()
        if captured is not None:
            constants = (*constants, *captured())
        try:
            pointers = addresses(*arrays)
            kind, found = places.get(pointers, nowhere)
            if not kind.fits(*arrays) or kind.constants != constants:
                kind, found = kind_of(arrays, constants), None
        except (AttributeError, RuntimeError, TypeError):
            other(arrays, given, constants, more)
            return
        if found is None:
            found = kind.ready.get(pointers) or first(kind, pointers, arrays, given)
            remember(places, pointers, (kind, found))
        stream = found.stream(found.index)
        away = found.current is not None and found.current() != found.index
        if more or away:
            found.launch(stream, more, away)
        elif (stream or not found.again()) and found.start(
            found.configs[stream], found.function, found.parameters, None
        ):
            found.launch(stream)

    def kind_of(tensors: Sequence[Any], constants: Key) -> Kind:
        """The kind of tensors that are not like those of the last call at their addresses."""
        key = properties(*tensors), constants
        kind = kinds.get(key)
        if kind is not None and kind.fits(*tensors):
            return kind
        fits = likeness(tensors, properties)
        # What torch compares besides may differ where all that matters is the same.
        kind = Kind(fits, constants) if kind is None else replace(kind, fits=fits)
        return remember(kinds, key, kind, MOST_KINDS)

    def first(kind: Kind, pointers: Key, arrays: Sequence[Any], given: Mapping[str, Any]) -> Ready:
        """A call with tensors at addresses that are new."""
        beyond = tuple(p % POINTER_ALIGN for p in pointers)
        known = kind.prepared.get(beyond)
        if known is None:
            known = remember(kind.prepared, beyond, prepare(describe(arrays), given))
        return remember(kind.ready, pointers, known.at(pointers))

    def other(arrays: Sequence[Any], given: Mapping[str, Any], constants: Key, more: Sequence[int]) -> None:
        """A call with arrays of other kinds."""
        described = describe(arrays)
        key = (*(replace(d, pointer=d.pointer % POINTER_ALIGN, stream=None) for d in described), constants)
        known = strangers.get(key) or remember(strangers, key, prepare(described, given))
        others.run(known, arrays, described, more)

    return call


def remember(known: dict[Key, T], key: Key, value: T, most: int = MOST) -> T:
    """Adds to a dictionary that forgets all when it is full: threads may read it meanwhile."""
    if len(known) >= most:
        known.clear()
    known[key] = value
    return value
