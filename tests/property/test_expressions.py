"""Random expressions of integers, masks and floats mean what NumPy says of the same text, and are compiled to that."""

from __future__ import annotations

import importlib.util
import itertools
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

ROWS, COLUMNS = 8, 32
SOURCE = f"""
import tidegate as tg


@tg.kernel(warps=WARPS)
def k(a: tg.Tensor["R", {COLUMNS}, "i32"], b: tg.Tensor["R", {COLUMNS}, "i32"], y: tg.Out["R", {COLUMNS}, "i32"]):
    for r in tg.grid(tg.tiles("R", {ROWS})):
        p = tg.load(a[r, :])
        q = tg.load(b[r, :])
        x = (p % 1024).astype("f32") / 8
        y[r, :] = EXPRESSION
"""
INTEGERS = st.sampled_from(
    ["0", "1", "-1", "2", "-3", "7", "31", "32", "-33", "255", "65537", "2147483647", "-2147483648"]
)
LEAVES = {
    "integer": st.sampled_from(["p", "q", f"tg.arange({COLUMNS})[None, :]", "(p & 15)", "(q >> 28)"]),
    "float": st.sampled_from(["x", "x * 0.25", "(x - 60)"]),
    "mask": st.sampled_from(["(p < q)", "(x > 40)", "(p == 0)", f"(tg.arange({COLUMNS})[None, :] < 5)"]),
}


def form(text: str, *kinds: str) -> tuple[str, tuple[str, ...]]:
    return text, kinds


FORMS: dict[str, list[tuple[str, tuple[str, ...]]]] = {
    "integer": [
        *(
            form(f"({{}} {op} {{}})", "integer", "integer")
            for op in ("+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>")
        ),
        *(form(f"({{}} {op} {{}})", "integer", "number") for op in ("+", "*", "//", "%", "&", "^", "<<", ">>")),
        form("({} - {})", "number", "integer"),
        form("(-{})", "integer"),
        form("(~{})", "integer"),
        form("({} ** 3)", "integer"),
        form("tg.abs({})", "integer"),
        form("tg.sign({})", "integer"),
        form("tg.maximum({}, {})", "integer", "number"),
        form("tg.clip({}, -9, 1000)", "integer"),
        form("tg.where({}, {}, {})", "mask", "integer", "integer"),
        form("{}.astype('i32')", "mask"),
        *(form(f"tg.{fold}({{}}, 1, True)", "integer") for fold in ("sum", "max", "min", "argmax", "argmin")),
        *(form(f"tg.{fold}({{}}, 1, True)", "float") for fold in ("argmax", "argmin")),
        form("tg.sum({}, 1, True)", "mask"),
    ],
    "float": [
        *(form(f"tg.{name}({{}})", "float") for name in ("floor", "ceil", "trunc", "round", "sign", "square", "abs")),
        *(form(f"({{}} {op} {{}})", "float", "float") for op in ("+", "*", "//", "%")),
        form("({} / 3)", "float"),
        form("tg.where({}, {}, 2.5)", "mask", "float"),
    ],
    "mask": [
        *(form(f"({{}} {op} {{}})", "mask", "mask") for op in ("&", "|", "^", "==", "!=")),
        *(form(f"({{}} {op} {{}})", "integer", "integer") for op in ("<", ">=", "!=")),
        form("({} <= {})", "float", "float"),
        form("(~{})", "mask"),
        form("tg.isfinite({})", "float"),
        form("tg.logical_xor({}, {})", "integer", "mask"),
        *(form(f"tg.{fold}({{}}, 1, True)", "mask") for fold in ("any", "all")),
    ],
}


@st.composite
def expressions(draw: st.DrawFn, kind: str = "integer", depth: int = 4) -> str:
    if kind == "number":
        return draw(INTEGERS)
    if not depth or draw(st.integers(0, 5)) == 0:
        return draw(LEAVES[kind])
    text, kinds = draw(st.sampled_from(FORMS[kind]))
    return text.format(*(draw(expressions(k, depth - 1)) for k in kinds))


def numpy_functions() -> SimpleNamespace:
    """The functions that the expressions name, of NumPy; sums keep 32 bits, positions are i32."""
    names = ("arange", "abs", "sign", "maximum", "clip", "where", "floor", "ceil", "trunc", "round", "square")
    functions: dict[str, Any] = {n: getattr(np, n) for n in (*names, "isfinite", "logical_xor")}
    for fold in ("max", "min", "any", "all", "argmax", "argmin"):
        functions[fold] = lambda x, axis, keep, fold=fold: _narrow(getattr(np, fold)(x, axis=axis, keepdims=keep))
    functions["sum"] = lambda x, axis, keep: np.sum(x, axis=axis, keepdims=keep, dtype=np.int32)
    functions["arange"] = lambda n: np.arange(n, dtype=np.int32)
    functions["where"] = lambda c, a, b: np.where(c, a, np.float32(b) if isinstance(b, float) else b)
    return SimpleNamespace(**functions)


def _narrow(x: np.ndarray) -> np.ndarray:
    return x.astype(np.int32) if x.dtype == np.int64 else x


NAMESPACE = numpy_functions()
_files = itertools.count()


@settings(max_examples=40, deadline=None)
@given(expressions(), st.sampled_from([1, 4]), st.integers(0, 2**32 - 1))
def test_expressions(expression: str, warps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    special = np.array([0, 1, -1, -(2**31), 2**31 - 1, 31, 32], np.int32)
    p = rng.integers(-(2**31), 2**31, (13, COLUMNS)).astype(np.int32) >> rng.integers(0, 32, (13, COLUMNS))
    q = np.where(rng.random((13, COLUMNS)) < 0.5, rng.choice(special, (13, COLUMNS)), p[::-1]).astype(np.int32)
    p = p.astype(np.int32)
    with np.errstate(all="ignore"):
        x = (p % 1024).astype(np.float32) / 8
        want = eval(expression.replace("'i32'", "'i4'"), {"p": p, "q": q, "x": x, "tg": NAMESPACE})
    wanted = np.broadcast_to(want, p.shape)
    assert wanted.dtype == np.int32
    kernel = _kernel(SOURCE.replace("WARPS", str(warps)).replace("EXPRESSION", f"({expression} + (p ^ p))"))
    plain, found = np.full((2, *p.shape), 77, np.int32)
    kernel.plain(p, q, plain)
    assert np.array_equal(plain, wanted)
    made = kernel.compile("sm_80", multiples={"R": 1})
    assert made.check().status == "safe"
    assert made.simulate(p, q, found, completion="random", seed=seed).ok
    assert np.array_equal(found, wanted)


def _kernel(text: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"expression{next(_files)}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.k.program()  # while the text is there
        return module.k
