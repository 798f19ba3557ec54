"""What to write instead of Python that a kernel cannot have, and of names from elsewhere."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.ir import hir
from tidegate.lang.scope import Number

GENERAL_ADVICE = "a kernel consists of assignments, for loops over tg.grid, tg.tiles and tg.range, and conditions"

HELPERS = "define compile-time helpers outside the kernel"

STATEMENTS: dict[type[ast.stmt], tuple[str, str]] = {
    ast.If: (
        "an 'if' on something that exists only on the GPU",
        "choose elementwise with tg.where; conditions compare integers: indices, scalars, elements of integers",
    ),
    ast.While: ("a 'while' loop", "loop over tg.tiles(...) or tg.range(n); n may be an integer of the run"),
    ast.Return: ("a 'return' statement", "assign to a window of a tg.Out parameter"),
    ast.Expr: ("an expression whose value is dropped", "assign the result to a name or to a window"),
    ast.AnnAssign: ("an annotation without a value", "drop it, or assign a value"),
    ast.FunctionDef: ("a nested function", HELPERS),
    ast.AsyncFunctionDef: ("a nested function", HELPERS),
    ast.ClassDef: ("a class", "define it outside the kernel"),
    ast.Assert: ("an 'assert' statement", "check constants outside the kernel"),
    ast.Delete: ("a 'del' statement", "let the name be: a tile's memory is freed after its last use"),
    ast.Import: ("an import", "import at the head of the module"),
    ast.ImportFrom: ("an import", "import at the head of the module"),
    ast.Break: ("a 'break' statement", "a loop runs over all its tiles: guard what the rest would do by a condition"),
    ast.Continue: (
        "a 'continue' statement",
        "a loop runs over all its tiles: guard the rest of the body by a condition",
    ),
    ast.AsyncFor: ("an 'async for' loop", "loop over tg.tiles(...)"),
    ast.AsyncWith: ("an 'async with' statement", GENERAL_ADVICE),
    ast.With: ("a 'with' statement", GENERAL_ADVICE),
    ast.Try: ("a 'try' statement", "check constants outside the kernel: nothing is raised on a GPU"),
    ast.Raise: ("a 'raise' statement", "check constants outside the kernel: nothing is raised on a GPU"),
    ast.Match: ("a 'match' statement", "use if, elif and else, which compare integers"),
    ast.Global: ("a 'global' statement", "write results to a tg.Out; globals can be read as they are"),
    ast.Nonlocal: ("a 'nonlocal' statement", "write results to a tg.Out; names of enclosing functions can be read"),
}

GATHERED = ("a comprehension over tiles", "loop over tg.range(n) or tg.tiles(...) and carry a tile: total += t")
CONTAINER = ("a container of tiles", "give each tile a name of its own")

EXPRESSIONS: dict[type[ast.expr], tuple[str, str]] = {
    **dict.fromkeys((ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp), GATHERED),
    **dict.fromkeys((ast.List, ast.Tuple, ast.Set, ast.Dict), CONTAINER),
    ast.Lambda: ("a lambda over tiles", "write its body where it is called; helpers compute compile-time values"),
    ast.JoinedStr: ("an f-string of what exists only on the GPU", "write the tile to a tg.Out to look at it"),
    ast.NamedExpr: ("an assignment inside an expression", "assign in a statement of its own before"),
    ast.IfExp: (
        "a choice by something that exists only on the GPU",
        "choose elementwise by tg.where(mask, a, b), or by an if statement that compares integers",
    ),
    ast.BoolOp: ("'and' and 'or' of tiles", "combine masks by & and |, in parentheses: (x > 0) & (y > 0)"),
    ast.Compare: ("a chained comparison, 'in' or 'is' of tiles", "compare twice: (0 < x) & (x < 1)"),
    ast.UnaryOp: ("'not' of a tile", "invert a mask by ~, or compare: x == 0"),
    ast.Yield: ("a 'yield'", "assign to a window of a tg.Out parameter"),
    ast.YieldFrom: ("a 'yield'", "assign to a window of a tg.Out parameter"),
    ast.Await: ("an 'await'", "drop it: a plan waits where it is necessary"),
}

GENERAL_EXPRESSION = "use operators, tg functions, .astype and .T on tiles; masks combine by & | ^ ~"

TRANSPOSED = (
    "x.T, which swaps the axes of a tile of rank 2; of a window with more axes give the others a position: x[h, m, :]"
)

ELSEWHERE = {
    "max": "tg.maximum(a, b) of two, x.max(axis=...) along an axis",
    "min": "tg.minimum(a, b) of two, x.min(axis=...) along an axis",
    "sum": "x.sum(axis=...)",
    "len": 't.shape[0] of a tile, tg.size("N") of a dimension',
    "range": "tg.range(n)",
    "print": "an output: a kernel prints nothing, so write the tile to a tg.Out",
    "int": 'x.astype("i32") of a tile; integers stay whole by // and tg.minimum, tg.maximum',
    "float": 'x.astype("f32") of a tile; integers become numbers with a fraction by /',
    "ones": "tg.full(shape, 1.0)",
    "empty": "tg.zeros(shape)",
    "relu": "tg.maximum(x, 0.0)",
    "sigmoid": "1.0 / (1.0 + tg.exp(-x))",
    "softmax": "e = tg.exp(x - x.max(axis=1, keepdims=True)), then e / e.sum(axis=1, keepdims=True)",
    "matmul": "tg.dot(a, b), or a @ b",
    "store": "an assignment: y[m, n] = t",
    "program_id": 'the index of a grid: for m in tg.grid(tg.tiles("M", BM)):',
    "cast": 'x.astype("f16")',
    "transpose": TRANSPOSED,
    "permute": TRANSPOSED,
    "trans": TRANSPOSED,
    "swapaxes": TRANSPOSED,
    "reshape": "a window of that shape; t[:, None] adds an axis",
    "cdiv": "(a + b - 1) // b; loops over tg.tiles round up by themselves",
}
"""Functions that authors know from Python, NumPy, torch or other kernel languages, and what stands for them here."""

SCAN = "scans are not supported: carry the result so far through a loop; running sums are a product, see tg.cumsum"
TRIANGLES = {
    0: "tg.dot((i[:, None] >= i[None, :]).astype(t.dtype), t)",
    1: "tg.dot(t, (i[:, None] <= i[None, :]).astype(t.dtype))",
}
"""Running sums of t along an axis: products with a triangle of ones."""


def running_sums(axis: int | None) -> str:
    """What to write instead of a cumsum along ``axis`` of a tile of rank 2 (None: not known)."""
    forms = [f"{form} along axis {n}" for n, form in TRIANGLES.items() if axis in (n, n - 2, None)]
    return (
        f"scans are not supported: multiply by a triangle of ones, {' or '.join(forms or TRIANGLES.values())}, with "
        "i = tg.arange(n), n the size along that axis (f32 needs by=cuda.mma(tf32=True) or .astype first); over a long "
        "axis carry the sum through a loop"
    )


JOIN = "nothing joins tiles: write each to a window of its own, y[m, 0:32] = a and y[m, 32:64] = b"
ATOMIC = (
    "additions are the only atomics: tg.atomic_add; for others let each CTA write its part to a row of its own, and "
    "fold the rows in a second kernel"
)
SORT = "nothing sorts a tile: .max and .argmax find one element; take it out by tg.where, and again"

UNSUPPORTED = {
    **dict.fromkeys(("cumprod", "cummax", "associative_scan", "scan"), SCAN),
    **dict.fromkeys(("join", "cat", "concatenate", "concat", "stack", "interleave"), JOIN),
    **dict.fromkeys((f"atomic_{op}" for op in ("max", "min", "and", "or", "xor", "xchg", "cas")), ATOMIC),
    **dict.fromkeys(("sort", "argsort", "topk"), SORT),
}
"""Functions that nothing stands for, and what to do without them."""

BUILTINS = {"abs": "abs", "min": "minimum", "max": "maximum"}
"""Functions of Python that conditions may have under another name."""

ARGUMENTS = dict.fromkeys(
    ("mask", "other", "boundary_check", "padding_option"),
    "edges need no mask: elements outside the tensor are read as 0; where 0 does harm, choose behind the load: "
    'tg.where(tg.positions(n) < tg.size("N"), t, other)',
)
"""Arguments of other languages' loads, and what to do without them."""


def operand(node: ast.expr) -> str:
    """The text of an expression, so that .astype(..) or .T may follow it."""
    text = ast.unparse(node)
    return text if isinstance(node, (ast.Name, ast.Call, ast.Subscript, ast.Attribute)) else f"({text})"


def axis_of(call: ast.Call, position: int) -> int | None:
    """The axis that a call gives by name or as the argument at ``position``; None where it is no number there."""
    named = [k.value for k in call.keywords if k.arg in ("axis", "dim")]
    try:
        axis = ast.literal_eval((named or call.args[position : position + 1])[0])
    except (IndexError, ValueError):
        return None
    return axis if isinstance(axis, int) else None


def instead_of(function: str, known: Iterable[str], axis: int | None = None) -> str:
    """What to write instead of a function that is no operation on tiles. ``known``: the operations' names; ``axis``:
    the one that it is called with."""
    names, name = tuple(known), function.rpartition(".")[2]
    if name == "cumsum":
        return running_sums(axis)
    if name in UNSUPPORTED:
        return UNSUPPORTED[name]
    found = ELSEWHERE.get(name) or (f"tg.{name}" if name in names else "")
    if found:
        return f"use {found}"
    if near := difflib.get_close_matches(name, names, 1):
        return f"did you mean tg.{near[0]}? docs/language.md lists all operations"
    advice = "docs/language.md lists all operations on tiles"
    helper = "write its body here: helpers see compile-time values only; "
    return advice if function.startswith("tg.") else helper + advice


def on_condition(test: ast.expr, bindings: Mapping[str, Any]) -> str:
    """What to do about a condition that compares no integers; empty where the general advice will do."""
    for part in ast.walk(test):
        if not isinstance(part, ast.Name):
            continue
        bound = bindings.get(part.id)
        if isinstance(bound, hir.Tensor):
            return "an element of integers may stand in a condition, tg.load(t[b]) > 0; of floats use tg.where"
        if isinstance(bound, hir.Value):
            return f"{part.id} is a tile, whose elements may differ: choose elementwise with tg.where(mask, a, b)"
        if isinstance(bound, (hir.Scalar, Number)):
            where = f"tg.where({part.id} > 0, a, b)"
            return f"{part.id} is f32, and conditions compare integers: use {where} or an i32 scalar"
    parts = list(ast.walk(test))
    calls = [n.func.id for n in parts if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    if builtin := next((name for name in calls if name in BUILTINS), None):
        return f"write tg.{BUILTINS[builtin]} of integers, instead of {builtin}"
    if any(isinstance(n, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for n in parts):
        return "compare integers by < <= > >= == !=, and combine comparisons by and, or, not"
    if any(isinstance(n, ast.Div) or (isinstance(n, ast.Constant) and isinstance(n.value, float)) for n in parts):
        return "conditions compare integers: divide by //, and compare with whole numbers"
    return ""
