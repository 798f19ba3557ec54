"""Plans as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from tidegate.errors import PlanFormat
from tidegate.plan.plan import AsyncPlan, SyncKind

FORMAT = 2


def to_json(plan: AsyncPlan) -> dict[str, Any]:
    """Plain data: dictionaries, lists, strings, numbers and None."""
    data = asdict(plan)
    for sync in data["syncs"]:
        sync["kind"] = sync["kind"].value
    return {"format": FORMAT, **data}


def save(plan: AsyncPlan, path: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(to_json(plan), indent=1) + "\n")


def load(path: str, kernel: str | None = None) -> AsyncPlan:
    """Reads a saved plan; of a list of several plans, the one for ``kernel``. Validate it before use (compiling with it
    does). Raises PlanFormat."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as error:
        raise PlanFormat(path=path, reason=error.strerror or str(error)) from None
    except (ValueError, RecursionError) as error:
        raise PlanFormat(path=path, reason=str(error)) from None
    if kernel is not None and isinstance(data, list) and len(data) > 1:
        data = [d for d in data if isinstance(d, dict) and d.get("kernel") == kernel]
        if len(data) != 1:
            raise PlanFormat(path=path, reason=f"it holds {len(data) or 'no'} plans for kernel {kernel}")
    return from_json(data, path)


def from_json(data: Any, path: str = "plan") -> AsyncPlan:
    """The plan that :func:`to_json` wrote; raises PlanFormat naming the field that does not fit."""
    if isinstance(data, list) and len(data) == 1:
        data = data[0]
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise PlanFormat(path=path, reason=f"it is no plan of format {FORMAT}")
    body = {k: v for k, v in data.items() if k != "format"}
    plan = _build(AsyncPlan, body, path, "plan")
    assert isinstance(plan, AsyncPlan)  # _build makes what it is told to
    return plan


def _build(kind: type[Any], data: Any, path: str, where: str) -> Any:
    """A dataclass from a dictionary, its fields checked against their annotations."""
    if not isinstance(data, dict):
        raise PlanFormat(path=path, reason=f"{where} is no object")
    names = {f.name for f in fields(kind)}
    wrong = sorted(names ^ set(data))
    if wrong:
        raise PlanFormat(path=path, reason=f"{where}: field {wrong[0]!r} is missing or unknown")
    hints = get_type_hints(kind)
    return kind(**{name: _value(hints[name], data[name], path, f"{where}.{name}") for name in names})


def _value(hint: Any, data: Any, path: str, where: str) -> Any:
    if hint is SyncKind:
        try:
            return SyncKind(data)
        except ValueError:
            raise PlanFormat(path=path, reason=f"{where}: {data!r} is no kind of sync") from None
    if get_origin(hint) is UnionType:
        options = get_args(hint)
        return None if data is None and type(None) in options else _value(options[0], data, path, where)
    if get_origin(hint) is tuple:
        return _tuple(get_args(hint), data, path, where)
    if hasattr(hint, "__dataclass_fields__"):
        return _build(hint, data, path, where)
    if not isinstance(data, hint) or (hint is int and isinstance(data, bool)):
        wanted = {str: "a text", int: "a whole number", bool: "true or false"}.get(hint, hint.__name__)
        raise PlanFormat(path=path, reason=f"{where}: {json.dumps(data)} is not {wanted}")
    return data


def _tuple(inner: tuple[Any, ...], data: Any, path: str, where: str) -> tuple[Any, ...]:
    if not isinstance(data, (list, tuple)):
        raise PlanFormat(path=path, reason=f"{where} is no list")
    if len(inner) == 2 and inner[1] is Ellipsis:
        return tuple(_value(inner[0], item, path, f"{where}[{i}]") for i, item in enumerate(data))
    if len(inner) != len(data):
        raise PlanFormat(path=path, reason=f"{where} has {len(data)} items, not {len(inner)}")
    return tuple(_value(h, item, path, where) for h, item in zip(inner, data, strict=True))
