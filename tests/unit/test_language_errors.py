"""Refusals of the front end, legalisation, memory and plans: the whole text, with the caret under the right characters.

``tests/golden/errors/<code>.txt`` holds the reports of each code, ``statements.txt`` one line per wrong statement.
"""

from __future__ import annotations

import importlib.util
import json
import re
import textwrap
import types
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidegate.errors import TidegateError
from tidegate.target.target import Fact, Target

Golden = Callable[[str, str], None]

HEAD = """\
import math
import tidegate as tg
from tidegate import cuda

class Box:
    value = 4

"""
SIGNATURE = 'a: tg.Tensor["M", "K", "f32"], b: tg.Out["M", "K", "f32"], *, B=16'
OPEN = 'for m, n in tg.grid(tg.tiles("M", B), tg.tiles("K", B)):\n    t = tg.load(a[m, n])\n'
CLOSE = "    b[m, n] = t\n"


def source(body: str, signature: str = SIGNATURE, decorator: str = "@tg.kernel") -> str:
    return f"{HEAD}{decorator}\ndef k({signature}):\n{textwrap.indent(textwrap.dedent(body), '    ')}"


def inside(statement: str, used: str = "", **options: str) -> str:
    """A kernel with a statement between a load and a store in its grid loop."""
    return source(OPEN + textwrap.indent(textwrap.dedent(statement), "    ") + "\n" + (used or CLOSE), **options)


def load(text: str, folder: Path, name: str = "kernels") -> types.ModuleType:
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def report(folder: Path, work: Callable[[], object]) -> TidegateError:
    """The refusal that work ends in; anything else fails the test."""
    with pytest.raises(TidegateError) as caught:
        work()
    return caught.value


def shown(error: TidegateError, folder: Path) -> str:
    text = str(error).replace(f"{folder}/", "")
    return re.sub(r"0x[0-9a-f]+", "0x..", text)


# ------------------------------------------------------------------------------------------ reports, by code

GEMM = 'a: tg.Tensor["M", "K", "{0}"], b: tg.Out["M", "K", "f32"], *, B={1}'
SQUARE = "t = tg.load(a[m, n])\nb[m, n] = tg.dot(t, t)"

MISSING = (
    "tg.join(t, t)",
    "tg.cumsum(t, axis=0)",
    "tg.cumsum(t, 1)",
    "tg.cumprod(t)",
    "tg.sort(t)",
    "tg.transpose(t)",
    "tg.copy(t)",
)

INDICES = (
    "h, m, 0",
    "-1, m, :",
    "4, m, :",
    "m, m, :",
    "m + 1, m, :",
    "h // m, m, :",
    "h / 2, m, :",
    "h, m",
    "h, h, m",
    "1.5, m, :",
    "True, m, :",
    "t, m, :",
)


def heads(statement: str, used: str = "    d[h, m, :] = t\n") -> str:
    """A kernel with an integer index h, and 4 heads."""
    head = 'for h, m in tg.grid(tg.range(4), tg.tiles("M", 16)):\n    t = tg.load(c[h, m, :])\n'
    return source(
        f"{head}    {statement or 'pass'}\n{used}", 'c: tg.Tensor[4, "M", 8, "f32"], d: tg.Out[4, "M", 8, "f32"]'
    )


def numbers(statement: str, used: str = "") -> str:
    """A kernel with integers to read, and scalars."""
    head = 'for m in tg.grid(tg.tiles("M", 8)):\n    t = tg.load(a[m])\n    n = tg.load(counts[2])\n'
    return source(
        f"{head}    {statement}\n    {used or 'b[m] = t'}\n",
        'a: tg.Tensor["M", "f32"], counts: tg.Tensor["B", "i32"], alpha: tg.Scalar["f32"], size: tg.Scalar["i32"],'
        ' b: tg.Out["M", "f32"]',
    )


def column(value: str) -> str:
    """A kernel that stores a tile of one axis."""
    signature = 'x: tg.Tensor["M", 16, "f32"], rows: tg.Tensor["M", "i64"], y: tg.Out["M", "f32"]'
    return source(f'for m in tg.grid(tg.tiles("M", 8)):\n    y[m] = {value}\n', signature)


def narrow(value: str) -> str:
    """A kernel that stores f32 as bf16."""
    return inside("", f"    b[m, n] = {value}\n").replace('b: tg.Out["M", "K", "f32"]', 'b: tg.Out["M", "K", "bf16"]')


SOURCES: dict[str, list[str]] = {
    "TG101": [
        inside("if t > 8:\n    t = t * 2"),
        inside("if m and t:\n    t = t * 2"),
        inside("if m > 2.5:\n    t = t * 2"),
        inside("if abs(m - 2) < 2:\n    t = t * 2"),
        inside("x = t if m else -t"),
        inside("x = a[m, n]"),
        inside("x = t[0, 1]"),
        inside("x = t[0]"),
        inside("x = t[m, None]"),
        inside("x = [t for _ in range(3)]"),
        inside("x = t and t"),
        inside("x = 0 < t < 1"),
        inside("x = a.shape[0]"),
        inside("x = t.exp()"),
        inside("x = t.cumsum(axis=1)"),
        heads("x = tg.load(c[:, m, :]).transpose(0, 2, 1)"),
        inside("try:\n    x = t\nfinally:\n    pass"),
        numbers("if alpha > 0.5:\n        t = t * 2.0"),
    ],
    "TG102": [
        inside("t = t + offset"),
        inside("x = tg.load(a[m, n], by=cuda.copy())"),
        inside('for q in tg.tiles("K", B):\n    y = t\nt = y'),
        inside('for q in tg.tiles("K", B):\n    y = t\nfor q in tg.tiles("K", B):\n    y = -t\nt = y'),
        inside('for q in tg.tiles("N", B):\n    pass'),
        inside("if m > 2:\n    y = t\nt = y"),
        inside('if m > 2:\n    y = t\nelse:\n    y = t.astype("f16")\nt = y'),
        numbers("if n > 2:\n        k = n + 1\n    for q in tg.range(k):\n        t = t * 2.0"),
        inside("for q in tg.tiles(K, B):\n    pass"),
        inside('if m > 2:\n    t = t.astype("f16")\nt = -t'),
        inside("if m > 2:\n    y = t\nelse:\n    y = t.sum(axis=0)\nt = y"),
    ],
    "TG103": [
        HEAD + "k = tg.kernel(lambda a: a)\n",
        HEAD + 'space = {"tg": tg}\nexec("@tg.kernel\\ndef k(): pass", space)\nk = space["k"]\n',
        HEAD + '@tg.kernel\nasync def k(a: tg.Tensor["M", "f32"]):\n    pass\n',
        HEAD + "k = tg.kernel(print)\n",
        HEAD + "@tg.kernel\nclass k:\n    pass\n",
    ],
    "TG104": [
        source("pass", 'a, b: tg.Out["M", "f32"]'),
        source("pass", 'a: tg.Tensor["M"]').replace("import math", "from __future__ import annotations"),
        source("pass", 'a: tg.Tensor["M", 0, "f32"]'),
        source("pass", 'a: tg.Tensor["M", "f32"], *, M="4"'),
        source("pass", 'a: tg.Tensor["for", "f32"]'),
        source("pass", 'a: tg.Tensor["M", "f32"] = None'),
        source("pass", 'a: tg.Tensor["M", "f32"], s: tg.Scalar["f16"]').replace(
            "import math", "from __future__ import annotations"
        ),
        source("pass", 'a: tg.Tensor["s", "f32"], s: tg.Scalar["i32"]'),
        source("pass", 'a: tg.Tensor["M", "f32"], *rest'),
        source("pass", 'a: tg.Tensor, s: tg.Scalar["f32"]'),
        source("pass", 'a: tg.Tensor["M", "f32"], s: tg.Scalar'),
        source("pass", 'a: tg.Tensor["M", "f32"], s: float'),
        source("pass", 'a: tg.Tensor["a", "f32"]'),
        source("pass", 'a: tg.Tensor["M", "f32"], *, plan=1'),
        HEAD + 'class Q:\n    @tg.kernel\n    def k(self, a: tg.Tensor["M", "f32"]):\n        pass\nk = Q().k\n',
    ],
    "TG105": [
        inside("x = tg.load()"),
        inside("x = tg.load(a[m, n], stages=0)"),
        inside("x = tg.load(a[m, n], by=cuda.cp_async)"),
        inside("x = t + m"),
        inside("x = math.sqrt(t)"),
        inside("x = max(t, 0)"),
        inside('x = tg.load(a[m, n], by="cp_async")'),
        source('for m in tg.grid(*[tg.tiles("M", B)]):\n    pass'),
        inside("x = helper(t)").replace("class Box", "def helper(x): return x\n\nclass Box"),
        inside("for q in tg.range(1, 4):\n    pass"),
        inside('b[m, n] = "3"'),
        inside("x = tg.maximum(1, 2)"),
        inside("x = t * 1e39"),
        inside("x = tg.sum(t)"),
        inside("x = t.max()"),
        inside("x = t.sum(axis=2)"),
        inside("x = t.sum(axis=None)"),
        inside("x = t.sum(axis=(0, 1))"),
        inside("x = t.min(axis=m)"),
        inside("x = t.sum(axis=0, keepdims=1)"),
        inside("x = tg.max(3, axis=0)"),
        inside("x = tg.exp(2.0)"),
        *(inside(f"x = {call}") for call in MISSING),
        inside("tg.atomic_max(b[m, n], t)"),
        inside("x = tg.load(a[m, n], mask=m < 3, other=0.0)"),
        *(
            heads(f"x = tg.load(c[{index}])")
            for index in ("h // 0, m, :", "h % (h // 2), m, :", "h + 2**31, m, :", "h * (0 - 2**31 - 1), m, :")
        ),
        numbers("x = tg.load(counts[0], stages=2)"),
        numbers("alpha = t"),
        numbers("t = tg.dot(alpha * 2.0, t)"),
        numbers("t = tg.full((8,), 1.5, alpha)"),
    ],
    "TG106": [
        inside("for q in range(3):\n    pass"),
        inside('for q in tg.tiles("K", 0):\n    pass'),
        inside('for m in tg.tiles("K", B):\n    pass'),
        inside("for q in tg.range(t):\n    pass"),
        inside('for q in tg.grid(tg.tiles("K", B)):\n    pass'),
        source('for m in tg.grid("M"):\n    pass'),
        source('for m in tg.grid(tg.tiles("M", 16)):\n    pass', 'tg: tg.Tensor["M", "f32"], b: tg.Out["M", "f32"]'),
        source('for m in tg.grid(tg.tiles("M", B), tg.tiles("K", B)):\n    pass'),
        source("for m in tg.grid(tg.range(n)):\n    pass", 'n: tg.Scalar["i32"], b: tg.Out["M", "f32"]'),
        source(OPEN + CLOSE + "t = tg.zeros((4, 4))"),
    ],
    "TG108": [
        inside('for q in tg.tiles("K", B):\n    t = t.astype("f16")'),
        inside('for q in tg.tiles("K", B):\n    t = t.max(axis=0)'),
        inside('x = 1\nfor q in tg.tiles("K", B):\n    x = x + 1'),
        inside("x = 1\nif m > 2:\n    x = 2"),
        numbers("if n > 2:\n        n = 2"),
        numbers("for q in tg.range(n):\n        n = q"),
        source("x = 1\n" + OPEN + "    x = x + 1\n    b[m, n] = t * x\n"),
    ],
    "TG109": [inside("x = 1 / 0"), inside("x = t * t.shape[2]"), inside("x = B.real.missing")],
    "TG201": [
        inside("t = t + tg.zeros((8, 8))"),
        inside("t = tg.dot(t, tg.zeros((8, 8)))"),
        inside("", "    b[m, n] = tg.zeros((8, 8))\n"),
        inside("x = tg.zeros((0, 4))"),
        inside("x = t + tg.zeros((8,))"),
        inside("x = t.sum(axis=1) + tg.zeros((8, 1))[:, None]"),
        inside("x = t * tg.zeros((8,))[:, None]"),
        inside("x = t[:, None]"),
        inside("x = tg.maximum(t, tg.zeros((2, 8, 16)))"),
        inside("", "    b[m, n] = t.sum(axis=1)\n"),
        *(column(value) for value in ("tg.load(x[m, :]).sum(axis=1, keepdims=True)", "tg.zeros(8)[:, None]")),
        heads("x = tg.load(c[:, m, :]).T"),
    ],
    "TG202": [
        inside('x = t.astype("f8")'),
        inside('x = t.astype("f16") + t.astype("bf16")'),
        inside("", '    b[m, n] = t.astype("f16")\n'),
        source("pass", 'a: tg.Tensor["M", "int8"]'),
        source("pass", 'a: tg.Tensor["M", "fp16"]'),
        inside("x = (t > 0.0) + 1"),
        inside("x = (t > 0.0) & 2"),
        inside("x = tg.positions(m) & (t > 0.0)"),
        inside("x = tg.positions(m) / 2"),
        inside("x = tg.positions(m) + 0.5"),
        inside("x = tg.positions(m) << 2**31"),
        inside("x = tg.positions(m) ** -1"),
        inside("x = tg.positions(m).mean(axis=0)"),
        inside("x = tg.isnan(tg.positions(m))"),
        inside("x = t & 1"),
        inside("x = t << 1"),
        inside('x = tg.full((16,), 0.5, "i32")'),
        inside('x = tg.full((16,), 2, "bool")'),
        numbers("x = tg.positions(m) * alpha"),
        numbers("x = (t > 0.0) & size"),
        inside("i = tg.arange(16)\nx = (i + 1) * t"),
        inside('x = t.astype("f16") @ t'),
        inside("b[m, n] += t - 1").replace('tg.Out["M", "K", "f32"]', 'tg.InOut["M", "K", "i32"]'),
        inside("x = (t < 1) ** 2"),
        *(narrow(value) for value in ("t * 2", "-t", "tg.exp(t)", "t.T if B else t")),
    ],
    "TG203": [
        inside("x = tg.load(a[n, m])"),
        inside("x = tg.load(a[m])"),
        inside("x = tg.load(a[m + 1, n])"),
        inside("x = tg.load(a[0:16:2, n])"),
        inside("x = tg.load(a[:, n])"),
        column("tg.load(x[tg.load(rows[m]) * 2, :]).sum(axis=1)"),
        *(heads(f"x = tg.load(c[{index}])") for index in INDICES),
    ],
    "TG204": [inside("x = tg.load(b[m, n])"), inside("a[m, n] = t"), inside("b[m, n] += t")],
    "TG205": [
        source(
            'for m, n in tg.grid(tg.tiles("M", B), tg.tiles("K", B)):\n    b[m] = tg.zeros(B)',
            'a: tg.Tensor["M", "K", "f32"], b: tg.Out["M", "f32"], *, B=16',
        ),
        source(
            'for m, n in tg.grid(tg.tiles("M", 8), tg.tiles("M", 16)):\n'
            "    b[m, n] = tg.zeros((8, 16))\n    b[n, m] = tg.zeros((16, 8))",
            'b: tg.Out["M", "M", "f32"]',
        ),
        heads("", "    d[h // 2, m, :] = t\n"),
        source(
            'for h in tg.grid(tg.range("H")):\n    b[h * 8 : h * 8 + 16] = tg.zeros(16)',
            'a: tg.Tensor["H", "f32"], b: tg.Out["M", "f32"]',
        ),
        heads("", "    d[h, m, :] = t\n    d[h + 1, m, :] = t\n"),
        source(
            'for h, i in tg.grid(tg.range("H"), tg.range("H")):\n'
            "    b[h, i, :] = tg.zeros(8)\n    b[i, h, :] = tg.zeros(8)",
            'b: tg.Out["H", "H", 8, "f32"]',
        ),
    ],
    "TG206": [source("pass")],
    "TG301": [
        inside("t = tg.load(a[m, n], by=cuda.tma())"),
        inside("t = tg.load(a[m, n], by=cuda.mma())"),
        inside("t = tg.load(a[m, n], by=cuda.cp_async(), stages=3)"),
        inside('t = tg.load(a[m, n], by=cuda.cp_async(), to="registers")'),
        inside("t = tg.load(a[m, n], by=cuda.cp_async(bytes=4))").replace('"f32"', '"i64"'),
    ],
    "TG302": [
        inside("t = tg.load(a[m, n], by=cuda.cp_async())", signature=SIGNATURE.replace('"K", "f32"', '33, "f16"'))
        .replace('"K"', "33")
        .replace("f32", "f16")
    ],
    "TG303": [
        source(OPEN + "    b[m, n] = tg.dot(t, t)", GEMM.format("f32", 16)),
        source(OPEN + "    b[m, n] = tg.dot(t, t)", GEMM.format("bf16", 8)),
        inside("").replace("B=16", "B=4096"),
    ],
    "TG306": [inside("", decorator=f"@tg.kernel(warps={w})") for w in ("3", "0", "64", "'4'")],
    "TG401": [
        inside("").replace("a[m, n]", "a[m, n], by=cuda.cp_async()").replace("B=16", "B=1024"),
        source(
            'for m in tg.grid(tg.tiles("M", B)):\n    for n in tg.tiles("K", B):\n'
            "        b[m, n] = tg.load(a[m, n], by=cuda.cp_async(), stages=60)"
        ).replace("B=16", "B=32"),
    ],
}


@pytest.mark.parametrize("code", SOURCES)
def test_source_is_refused_with_a_located_report(code: str, tmp_path: Path, golden: Golden) -> None:
    texts = []
    for number, text in enumerate(SOURCES[code]):
        error = report(tmp_path, lambda: load(text, tmp_path, f"kernels{number}").k.compile(target="h200"))  # noqa: B023
        assert error.code == code, error
        assert error.span is not None or code == "TG103"
        texts.append(shown(error, tmp_path))
    golden(f"errors/{code}.txt", "\n\n".join(texts))


def test_two_places_in_one_line_are_shown_under_one_line(tmp_path: Path) -> None:
    statement = "t = tg.load(a[m, n], by=cuda.cp_async()) * 2"
    kernel = load(
        source(f'for m, n in tg.grid(tg.tiles("M", B), tg.tiles("K", B)):\n    {statement}\n{CLOSE}'), tmp_path
    ).k
    plan = replace(kernel.compile(target="h200").plan, syncs=())
    error = report(tmp_path, lambda: kernel.compile(plan=plan))
    assert str(error).count(statement) == 1
    assert [line.strip(" |") for line in str(error).splitlines() if "^" in line] == [
        "^" * len(statement.removeprefix("t = ")),
        "^" * len(statement.removeprefix("t = ").removesuffix(" * 2")) + " copy_t1, the other access",
    ]


def test_a_plan_tells_the_target(tmp_path: Path) -> None:
    kernel = load(inside(""), tmp_path).k
    plan = kernel.compile(target="sm_89").plan
    plan.save(tmp_path / "plan.json")
    assert kernel.compile(plan=plan).target.name == "sm_89"
    assert kernel.compile(plan=str(tmp_path / "plan.json")).target.name == "sm_89"


@pytest.mark.parametrize("value", ["t * 2", "t - t", "-t", "t.T", "t[:, :] + 1"])
def test_the_cast_that_is_advised_is_accepted(value: str, tmp_path: Path) -> None:
    error = report(tmp_path, lambda: load(narrow(value), tmp_path).k.compile(target="h200"))
    advised = error.next_step.removeprefix("write ")
    load(narrow(advised), tmp_path, "again").k.compile(target="h200")


def _requests() -> Iterator[tuple[str, Callable[[Any, Path], object]]]:
    """Wrong ways to use a good kernel."""
    yield "TG107", lambda k, _: k.compile(target="h200", BQ=3)
    yield "TG307", lambda k, _: k.compile(target="h200", ctas_per_sm=0)
    yield "TG307", lambda k, _: k.compile(target="h200", ctas_per_sm="4")
    yield "TG107", lambda k, _: k.compile(target="h200", M=-1)
    yield "TG107", lambda k, _: k.plain(M=1.5)
    yield "TG107", lambda k, _: k.plain(a=np.zeros((4, 4), "f4"), b=np.zeros((4, 4), "f4"))
    yield "TG107", lambda k, _: k(np.zeros((4, 4), "f4"), b=np.zeros((4, 4), "f4"))
    yield "TG107", lambda k, _: k.compile(target="h200", multiples={"Q": 8})
    yield "TG107", lambda k, _: k.compile(target="h200", B=[16])
    yield "TG304", lambda k, _: k.compile(target="h300")
    yield "TG304", lambda k, _: k.compile(target=[])
    yield "TG304", lambda k, _: k.compile(target="SM80")
    yield "TG304", lambda k, _: k.compile(target="v100")
    yield "TG304", lambda k, _: k.compile(target="sm_75")
    yield "TG305", lambda k, _: k.compile(target="h200", plan="fastest")
    yield "TG305", lambda k, _: k.compile(target="h200", plan=[])
    yield "TG402", lambda k, _: Target("toy", "sm_80", {"warps": Fact(4, "none")}).fact("smem_per_cta")
    yield "TG501", lambda k, _: k.compile(target="h200", B=32, plan=k.compile(target="h200").plan)
    yield "TG501", lambda k, _: k.compile(target="h200", plan=replace(k.compile(target="h200").plan, syncs=()))
    yield "TG502", lambda k, p: k.compile(target="h200", plan=_plan_file(k, p, "{"))
    yield "TG502", lambda k, p: k.compile(target="h200", plan=_plan_file(k, p, None))
    yield "TG502", lambda k, p: k.compile(target="h200", plan=str(p / "missing.json"))


def _plan_file(kernel: Any, folder: Path, text: str | None) -> str:
    data = kernel.compile(target="h200").plan.to_json()
    data["warps"] = "four"
    (folder / "plan.json").write_text(json.dumps(data) if text is None else text)
    return str(folder / "plan.json")


@pytest.mark.parametrize("code", sorted({code for code, _ in _requests()}))
def test_wrong_request_is_refused(code: str, tmp_path: Path, golden: Golden) -> None:
    kernel = load(
        source(
            'for m in tg.grid(tg.tiles("M", B)):\n    for n in tg.tiles("K", B):\n'
            "        t = tg.load(a[m, n], by=cuda.cp_async(), stages=2)\n        b[m, n] = t * 2"
        ),
        tmp_path,
    ).k
    texts = []
    for work in (work for c, work in _requests() if c == code):
        error = report(tmp_path, lambda: work(kernel, tmp_path))  # noqa: B023
        assert error.code == code, error
        texts.append(shown(error, tmp_path))
    golden(f"errors/{code}.txt", "\n\n".join(texts))


# ------------------------------------------------------------------------------------------ every wrong statement

STATEMENTS = (Path(__file__).parent / "wrong_statements.txt").read_text(encoding="utf-8").splitlines()


def test_every_wrong_statement_has_code_and_place(tmp_path: Path, golden: Golden) -> None:
    """One line per statement: code, what is underlined, message."""
    lines = []
    for number, line in enumerate(STATEMENTS):
        statement = line.replace("\\n", "\n")
        kernel = load(
            inside(statement, "    b[m, n] = t + x\n" if line.startswith("x = ") else ""), tmp_path, f"s{number}"
        ).k
        error = report(tmp_path, lambda: kernel.compile(target="h200"))  # noqa: B023
        assert error.span is not None, line
        under = error.span.text[error.span.column : error.span.end_column]
        assert under, line
        assert error.next_step, line
        lines.append(
            f"{error.code} {line}\n      {under}\n      {shown(error, tmp_path).splitlines()[0].split(': ', 1)[1]}"
        )
    golden("errors/statements.txt", "\n".join(lines))


# ------------------------------------------------------------------------------------------ where text comes from


def test_place_counts_characters_not_bytes(tmp_path: Path) -> None:
    kernel = load(inside("ü = t\nx = ü + missing"), tmp_path).k
    error = report(tmp_path, lambda: kernel.compile(target="h200"))
    assert error.span is not None
    assert error.span.text[error.span.column : error.span.end_column] == "missing"
    assert "x = ü + missing\n    |         ^^^^^^^" in str(error)


@pytest.mark.parametrize("indent", ["    ", "\t"])
@pytest.mark.parametrize("odd", ["# flush left", '"""doc\nflush left\n"""'])
def test_nested_def_with_text_flush_left(indent: str, odd: str, tmp_path: Path) -> None:
    text = (
        f"{HEAD}def make(factor):\n{indent}@tg.kernel\n"
        f'{indent}def k(x: tg.Tensor["R", "f32"], y: tg.Out["R", "f32"]):\n'
        f"{odd if odd[0] == '#' else indent * 2 + odd}\n"
        f'{indent * 2}for r in tg.grid(tg.tiles("R", 32)):\n'
        f"{indent * 3}y[r] = tg.load(x[r]) * factor + missing\n{indent}return k\nk = make(3.0)\n"
    )
    error = report(tmp_path, lambda: load(text, tmp_path).k.compile(target="h200"))
    assert error.code == "TG102"
    assert error.span is not None
    assert text.splitlines()[error.span.line - 1] == error.span.text
    assert error.span.text[error.span.column :] == "missing"


def test_notebook_cell_has_source(tmp_path: Path) -> None:
    """IPython puts cells into linecache under a made-up file name."""
    import linecache

    text = inside("x = t + missing")
    name = "<ipython-input-1-abc>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), space)
    error = report(tmp_path, lambda: space["k"].compile(target="h200"))
    assert error.code == "TG102"
    assert f"{name}:" in str(error)


def test_two_kernels_of_one_name(tmp_path: Path) -> None:
    text = inside("first = t") + "first = k\n" + inside("x = t + missing")[len(HEAD) :]
    module = load(text, tmp_path)
    module.first.compile(target="h200")
    assert report(tmp_path, lambda: module.k.compile(target="h200")).code == "TG102"


def test_changed_global_is_seen(tmp_path: Path) -> None:
    module = load("SCALE = 2.0\n" + inside("t = t * SCALE"), tmp_path)
    a, b = np.ones((16, 16), "f4"), np.empty((16, 16), "f4")
    module.k.plain(a, b)
    module.SCALE = 3.0
    module.k.plain(a, b)
    assert (b == 3).all()


def test_unknown_decorator_argument_and_use_outside_a_kernel(tmp_path: Path) -> None:
    import tidegate as tg

    assert report(tmp_path, lambda: tg.kernel(warp=4)).code == "TG105"  # type: ignore[call-overload]
    for name in ("load", "dot", "zeros", "full", "maximum", "minimum", "grid", "tiles", "sum", "max", "min"):
        function = getattr(tg, name)
        error = report(tmp_path, lambda: function(*([1] * (name in ("load", "zeros")) or [1, 2])))  # noqa: B023
        assert error.code == "TG105"
        assert f"tg.{name} was called outside a kernel" in str(error)


# ------------------------------------------------------------------------------------------ arrays

WRONG_ARRAYS: dict[str, Callable[[Any], tuple[Any, ...]]] = {
    "too few": lambda a: (a,),
    "too many": lambda a: (a, a.copy(), a),
    "rank": lambda a: (a, np.empty(4, "f4")),
    "shape": lambda a: (a, np.empty((32, 16), "f4")),
    "dtype": lambda a: (a.astype("f8"), a.copy()),
    "no array": lambda a: (a, None),
    "list": lambda a: (a, [[0.0]]),
    "read only": lambda a: (a, _read_only(a)),
}


def _read_only(a: np.ndarray) -> np.ndarray:
    out = a.copy()
    out.flags.writeable = False
    return out


def test_unknown_completion_policy_is_refused(tmp_path: Path) -> None:
    compiled = load(inside(""), tmp_path).k.compile(target="h200")
    a = np.ones((16, 16), "f4")
    error = report(tmp_path, lambda: compiled.simulate(a, a.copy(), completion="never"))
    assert error.code == "TG701"
    assert "early, late, random" in error.next_step


@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        (((8, 4), (8, 16)), "a is [M, 16], got shape (8, 4): axis 1 has 16 elements"),
        (((8, 16), (9, 16)), "b is [M, 16], got shape (9, 16): axis 0 has M = 8 elements, as axis 0 of a"),
    ],
)
def test_wrong_shapes_are_named_by_axis(shapes: Any, text: str, tmp_path: Path) -> None:
    kernel = load(inside("").replace('"K", "f32"', '16, "f32"').replace('tg.tiles("K"', "tg.tiles(16"), tmp_path).k
    error = report(tmp_path, lambda: kernel.plain(*(np.zeros(s, "f4") for s in shapes)))
    assert error.text == f"k: {text}"


@pytest.mark.parametrize("how", ["plain", "simulate"])
@pytest.mark.parametrize("wrong", WRONG_ARRAYS)
def test_wrong_arrays_are_refused(how: str, wrong: str, tmp_path: Path) -> None:
    kernel = load(inside(""), tmp_path).k
    run = kernel.plain if how == "plain" else kernel.compile(target="h200").simulate
    good = np.ones((16, 16), "f4")
    run(good, good.copy())
    error = report(tmp_path, lambda: run(*WRONG_ARRAYS[wrong](good)))
    assert error.code == "TG701"
    assert error.next_step
