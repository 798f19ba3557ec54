"""Laws of the package's shape: rooms import downwards only, and ``import tidegate`` costs next to nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "tidegate"

# From the bottom up. A room may import its own group and the groups above it in this list.
GROUPS = (
    ("lang", "cuda", "ir", "ops", "target"),
    ("legalise",),
    ("analyze",),
    ("plan", "solve"),
    ("lower",),
    ("check", "simulate", "emit"),
    ("runtime",),
    ("explain", "cli"),
)
LEVEL = {room: level for level, group in enumerate(GROUPS) for room in group}

# The checker is only worth something if it shares no logic with what it checks: it knows the IR and the target's facts.
INDEPENDENT = {"check": {"legalise", "analyze", "plan", "solve", "lower"}}

EVERYONE = {"errors", "span"}  # may be imported by every room, so they stand on none
SURFACE = {"__init__", "__main__"}  # the public surface and the way in: stand on everything
FACADE = {"lang/kernel.py"}  # what an author holds: runs the whole pipeline, so may name anything for the type checker


def module_level_imports(tree: ast.Module, *, type_checking: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that run when the module is imported, whatever block they stand in.

    An import for the type checker alone is a dependence on another room's shape and counts too, if ``type_checking``.
    """
    todo: list[ast.AST] = list(reversed(tree.body))
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING") and not type_checking:
            todo.extend(reversed(node.orelse))
        else:
            todo.extend(reversed(list(ast.iter_child_nodes(node))))


def imported(node: ast.Import | ast.ImportFrom, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The dotted names that an import statement in a module of ``package`` asks for."""
    if isinstance(node, ast.Import):
        yield from (tuple(alias.name.split(".")) for alias in node.names)
        return
    base = package[: len(package) - node.level + 1] if node.level else ()
    base += tuple(node.module.split(".")) if node.module else ()
    yield from ((*base, alias.name) for alias in node.names)


def faults(path: str, source: str) -> list[str]:
    """What is wrong with the imports of the module at ``path`` (relative to the package)."""
    parts = ("tidegate", *Path(path).with_suffix("").parts)
    room = parts[1]
    if room in SURFACE:
        return []
    if room not in LEVEL and room not in EVERYONE:
        return [f"{path}: room {room!r} is in no group; give it a place in GROUPS and in CONTRIBUTING.md"]
    found = []
    for node in module_level_imports(ast.parse(source, path), type_checking=path not in FACADE):
        for name in imported(node, parts[:-1]):
            if name[0] != "tidegate":
                continue
            other = name[1] if len(name) > 1 else None
            if other in EVERYONE or other == room:
                continue
            if other not in LEVEL:
                why = "a room imports the room that has the name, not the public surface"
            elif room in EVERYONE:
                why = f"{room} may be imported by all and so imports no room"
            elif LEVEL[other] > LEVEL[room]:
                why = "imports point downwards"
            elif other in INDEPENDENT.get(room, ()):
                why = f"{room} shares no logic with {other}"
            else:
                continue
            found.append(f"{path}:{node.lineno}: {room} imports {'.'.join(name)}: {why}")
    return found


def test_rooms_import_downwards_only() -> None:
    modules = sorted(PACKAGE.rglob("*.py"))
    assert modules
    found = [f for m in modules for f in faults(m.relative_to(PACKAGE).as_posix(), m.read_text(encoding="utf-8"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("ir/hir.py", "from tidegate.plan.plan import AsyncPlan"),
        ("ir/hir.py", "from ..plan import plan"),
        ("ir/hir.py", "from .. import plan"),
        ("ir/hir.py", "import tidegate"),
        ("ir/hir.py", "from tidegate import kernel"),
        ("target/nvidia/facts.py", "from ...lower import tir"),
        ("ir/hir.py", "try:\n    import tidegate.lower\nexcept ImportError:\n    pass"),
        ("ir/hir.py", "class A:\n    from tidegate.cli import main"),
        ("ir/hir.py", "if TYPE_CHECKING:\n    from tidegate.plan import plan"),
        ("lang/kernel.py", "from tidegate.runtime import launch"),
        ("lang/kernel.py", "if TYPE_CHECKING:\n    pass\nelse:\n    from tidegate.runtime import launch"),
        ("check/__init__.py", "from ..plan import plan"),
        ("check/rules.py", "from tidegate.plan.plan import AsyncPlan"),
        ("plan/validate.py", "from tidegate.check import rules"),
        ("errors.py", "from tidegate.ir import hir"),
        ("helpers.py", "import ast"),
    ],
)
def test_the_law_sees(path: str, source: str) -> None:
    assert len(faults(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("__init__.py", "from tidegate.lang.kernel import kernel"),
        (
            "ir/hir.py",
            "from . import tir\nfrom .tir import Copy\nfrom ..errors import Refusal\nfrom tidegate import errors",
        ),
        ("lang/parser.py", "from tidegate.ir import hir\nimport numpy as np"),
        ("lang/kernel.py", "if TYPE_CHECKING:\n    from tidegate.plan.plan import AsyncPlan"),
        ("lang/kernel.py", "def compile():\n    from tidegate.runtime import launch"),
        ("plan/validate.py", "from tidegate.analyze import depend\nfrom tidegate.solve import model"),
        ("check/rules.py", "from tidegate.ir import tir\nfrom tidegate.target import facts"),
        ("cli.py", "from tidegate.explain import text\nimport typer"),
    ],
)
def test_the_law_allows(path: str, source: str) -> None:
    assert faults(path, source) == []


PROBE = """
import sys, time
start = time.process_time()
import tidegate
print(time.process_time() - start, *sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_importing_tidegate_is_cheap() -> None:
    seconds = []
    for _ in range(5):  # processor time, best of five: other tests run beside
        out = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True).stdout.split()
        seconds.append(float(out[0]))
        heavy = {"numpy", "ml_dtypes", "cuda", "rich", "typer"} & set(out[1:])
        assert not heavy, f"import tidegate imports {', '.join(sorted(heavy))}: import it where it is used"
    assert min(seconds) < 0.15
