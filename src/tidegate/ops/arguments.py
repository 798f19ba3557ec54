"""The arguments of a call: which are arrays, and what its numbers are."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from tidegate.errors import WrongArguments
from tidegate.ir.dtypes import I32, DType, number


def split(
    kernel: str, order: Sequence[str], scalars: Mapping[str, DType], arguments: Sequence[Any]
) -> tuple[Sequence[Any], dict[str, int | float]]:
    """The arrays of a call, and the values of its scalars by name. ``order``: all parameters. Raises WrongArguments for
    numbers of the wrong kind or range, and where there are scalars, for the wrong number of arguments."""
    if not scalars:
        return arguments, {}
    if len(arguments) != len(order):
        raise WrongArguments(
            kernel=kernel,
            what=f"got {len(arguments)} arguments for the parameters {', '.join(order)}",
            advice="pass one array or number each",
        )
    given = dict(zip(order, arguments, strict=True))
    values = {name: checked(kernel, name, dtype, given[name]) for name, dtype in scalars.items()}
    return [argument for name, argument in given.items() if name not in scalars], values


def checked(kernel: str, name: str, dtype: DType, given: Any) -> int | float:
    """A number as the scalar ``name`` holds it; raises WrongArguments."""
    value = number(dtype, given)
    if value is None:
        shown = repr(given) if isinstance(given, (bool, numbers.Number)) else f"a {type(given).__name__}"
        if getattr(given, "shape", ()):
            shown += f" of shape {tuple(given.shape)}"
        kind = "a whole number of 32 bits" if dtype == I32 else "a number within the range of f32"
        raise WrongArguments(kernel=kernel, what=f"{name} is {dtype}, got {shown}", advice=f"give {kind}")
    return value
