"""Integer expressions over sizes, grid and loop indices: the scalar part of HIR and TIR.

    expr := INT | NAME | (expr OP expr) | cdiv(expr, expr) | min(expr, expr) | max(expr, expr)
    OP   := + - * / % < <= == != && ||       ('/' is floor division; comparisons, && and || give 0 or 1)

All values are uniform over the threads of a CTA, so a loop bound or a condition never diverges.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


def hashed_once(cls: type[T]) -> type[T]:
    """A frozen dataclass that works out its hash once: expressions are deep, and are looked up all the time."""
    deep: Callable[[T], int] = cls.__hash__

    def __hash__(self: T) -> int:
        found: int | None = self.__dict__.get("_hash")
        if found is None:
            found = self.__dict__["_hash"] = deep(self)
        return found

    def __getstate__(self: T) -> dict[str, Any]:  # another process hashes names otherwise
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    cls.__hash__ = __hash__  # type: ignore[method-assign,assignment]
    cls.__getstate__ = __getstate__  # type: ignore[method-assign,assignment]
    return cls


@dataclass(frozen=True)
class Int:
    """A constant."""

    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Sym:
    """A name: a size, a grid index, a loop index or a scalar."""

    name: str

    def __str__(self) -> str:
        return self.name


@hashed_once
@dataclass(frozen=True)
class Bin:
    """An operator or function of two expressions."""

    op: str
    a: Expr
    b: Expr

    def __str__(self) -> str:
        if self.op in FUNCTIONS:
            return f"{self.op}({self.a}, {self.b})"
        level = PRECEDENCE[self.op]
        left = f"({self.a})" if _level(self.a) < level else str(self.a)
        right = f"({self.b})" if _level(self.b) <= level else str(self.b)
        return f"{left} {self.op} {right}"


Expr = Int | Sym | Bin


class Unexpected(ValueError):
    """A token that cannot stand where it does; ``at`` is its index among the tokens given to :func:`parse_tokens`."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


PRECEDENCE = {"||": 0, "&&": 1, "<": 2, "<=": 2, "==": 2, "!=": 2, "+": 3, "-": 3, "*": 4, "/": 4, "%": 4}
FUNCTIONS = ("cdiv", "min", "max")
COMPARISONS = ("<", "<=", "==", "!=")

EVALUATE: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "||": lambda a, b: int(bool(a) or bool(b)),
    "cdiv": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
}


def _level(e: Expr) -> int:
    return PRECEDENCE[e.op] if isinstance(e, Bin) and e.op in PRECEDENCE else 9


def binary(op: str, a: Expr | int, b: Expr | int) -> Expr:
    """``a op b`` with constants folded and neutral elements dropped, so that printed expressions stay short."""
    a, b = _lift(a), _lift(b)
    if isinstance(a, Int) and isinstance(b, Int) and not (op in ("/", "%", "cdiv") and b.value == 0):
        return Int(EVALUATE[op](a.value, b.value))
    if (op == "+" and b == Int(0)) or (op in ("*", "/", "cdiv") and b == Int(1)) or (op == "-" and b == Int(0)):
        return a
    if (op == "+" and a == Int(0)) or (op == "*" and a == Int(1)):
        return b
    if op == "*" and Int(0) in (a, b):
        return Int(0)
    if op in ("&&", "||"):
        one, other = (b, a) if isinstance(b, Int) else (a, b)
        if isinstance(one, Int):
            return _truth(other) if bool(one.value) == (op == "&&") else Int(int(op == "||"))
    return _joined(op, a, b) or Bin(op, a, b)


def _joined(op: str, a: Expr, b: Expr) -> Expr | None:
    """One operation for two of which the constants join: (x + 2) - 1, (x * 16) / 8."""
    if not isinstance(a, Bin) or not isinstance(a.b, Int) or not isinstance(b, Int):
        return None
    if op in ("+", "-") and a.op in ("+", "-"):
        total = (a.b.value if a.op == "+" else -a.b.value) + (b.value if op == "+" else -b.value)
        return binary("+", a.a, total) if total >= 0 else binary("-", a.a, -total)
    if op == "/" and a.op == "*" and b.value > 0 and a.b.value % b.value == 0:
        return binary("*", a.a, a.b.value // b.value)
    return None


def _truth(e: Expr) -> Expr:
    """1 where e is not 0, else 0."""
    known = isinstance(e, Bin) and e.op in (*COMPARISONS, "&&", "||")
    return e if known else binary("!=", e, 0)


def add(a: Expr | int, b: Expr | int) -> Expr:
    return binary("+", a, b)


def mul(a: Expr | int, b: Expr | int) -> Expr:
    return binary("*", a, b)


def cdiv(a: Expr | int, b: Expr | int) -> Expr:
    """Ceiling division: the number of tiles of size b that cover a."""
    return binary("cdiv", a, b)


def less(a: Expr | int, b: Expr | int) -> Expr:
    return binary("<", a, b)


def negated(condition: Expr) -> Expr:
    """The condition that holds where this one does not."""
    if isinstance(condition, Bin):
        a, b = condition.a, condition.b
        match condition.op:
            case "<":
                return binary("<=", b, a)
            case "<=":
                return binary("<", b, a)
            case "==" | "!=":
                return binary("!=" if condition.op == "==" else "==", a, b)
            case "&&" | "||":
                return binary("||" if condition.op == "&&" else "&&", negated(a), negated(b))
    return binary("==", condition, 0)


def evaluate(e: Expr, env: Mapping[str, int]) -> int:
    """The value of e; raises KeyError for a name that env lacks (callers check names beforehand)."""
    if isinstance(e, Int):
        return e.value
    if isinstance(e, Sym):
        return env[e.name]
    return EVALUATE[e.op](evaluate(e.a, env), evaluate(e.b, env))


class Overflow(ArithmeticError):
    """A part of an expression whose value does not fit in 32 bits."""

    def __init__(self, part: Expr, value: int) -> None:
        super().__init__(f"{part} is {value}")
        self.part, self.value = part, value


def in_32_bits(e: Expr, env: Mapping[str, int]) -> int:
    """The value of e as a GPU computes it; raises Overflow where a part of e has a value that 32 bits do not hold, and
    which nothing defines there."""
    if isinstance(e, Int):
        return e.value
    if isinstance(e, Sym):
        return env[e.name]
    a = in_32_bits(e.a, env)
    if e.op in ("&&", "||") and bool(a) == (e.op == "||"):
        return int(bool(a))  # what stands on the right is not computed
    value = EVALUATE[e.op](a, in_32_bits(e.b, env))
    if not -(2**31) <= value < 2**31:
        raise Overflow(e, value)
    return value


def symbols(e: Expr) -> Iterator[str]:
    """The names in e, left to right."""
    if isinstance(e, Sym):
        yield e.name
    elif isinstance(e, Bin):
        yield from symbols(e.a)
        yield from symbols(e.b)


def parts(e: Expr) -> Iterator[Expr]:
    """e and all expressions inside it."""
    yield e
    if isinstance(e, Bin):
        yield from parts(e.a)
        yield from parts(e.b)


def difference(a: Expr, b: Expr) -> int | None:
    """a - b where that is one number whatever the names stand for, else None."""
    (base, terms), (other, less_) = linear(a), linear(b)
    left = {t: terms.get(t, 0) - less_.get(t, 0) for t in {*terms, *less_}}
    return None if any(left.values()) else base - other


def linear(e: Expr) -> tuple[int, dict[Expr, int]]:
    """e as a constant, and what is added to it: expressions that are no sums, with their factors."""
    if isinstance(e, Int):
        return e.value, {}
    if isinstance(e, Bin) and e.op in ("+", "-"):
        sign = 1 if e.op == "+" else -1
        (base, terms), (other, more) = linear(e.a), linear(e.b)
        return base + sign * other, {t: terms.get(t, 0) + sign * more.get(t, 0) for t in {**terms, **more}}
    if isinstance(e, Bin) and e.op == "*":
        for factor_, rest in ((e.a, e.b), (e.b, e.a)):
            if isinstance(factor_, Int):
                base, terms = linear(rest)
                return base * factor_.value, {t: c * factor_.value for t, c in terms.items()}
    return 0, {e: 1}


def least(e: Expr, signed: Container[str] = ()) -> float:
    """A number that e never goes below, -inf when none is known; names are 0 or more, but for the ``signed`` ones."""
    if isinstance(e, Int):
        return e.value
    if isinstance(e, Sym):
        return -math.inf if e.name in signed else 0
    a, b = least(e.a, signed), least(e.b, signed)
    match e.op:
        case "+":
            return a + b
        case "-":
            return a - e.b.value if isinstance(e.b, Int) else -math.inf
        case "min":
            return min(a, b)
        case "max":
            both = difference(e.a, binary("-", 0, e.b))  # an absolute value: neither is known, but their sum
            return max(a, b) if both is None else max(a, b, -(-both // 2))
        case "*":
            return a * b if a >= 0 and b >= 0 else -math.inf
        case "/" | "cdiv" if isinstance(e.b, Int) and e.b.value > 0 and a > -math.inf:
            return EVALUATE[e.op](int(a), e.b.value)
        case "/" | "cdiv" if a >= 0 and b >= 1:
            return int(e.op == "cdiv" and a >= 1)
        case "%" if b >= 1:
            return 0
        case "/" | "cdiv" | "%":
            return -math.inf
    return 0  # of conditions


def factor(e: Expr) -> int:
    """A number that divides e whatever the names stand for; 0 when e is 0."""
    if isinstance(e, Int):
        return abs(e.value)
    if isinstance(e, Sym):
        return 1
    if e.op == "*":
        return factor(e.a) * factor(e.b)
    return math.gcd(factor(e.a), factor(e.b)) if e.op in ("+", "-", "%", "min", "max") else 1


def substitute(e: Expr, env: Mapping[str, Expr]) -> Expr:
    """e with names replaced."""
    if isinstance(e, Sym):
        return env.get(e.name, e)
    if isinstance(e, Bin):
        return binary(e.op, substitute(e.a, env), substitute(e.b, env))
    return e


def _lift(e: Expr | int) -> Expr:
    return Int(e) if isinstance(e, int) else e


_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_]\w*)|(&&|\|\||<=|==|!=|[-+*/%<(),]))")


def parse(text: str) -> Expr:
    """Read one expression; raises ValueError with the offending text."""
    tokens: list[str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if not match:
            raise ValueError(f"cannot read {text[at:]!r} in the expression {text!r}")
        tokens.append(match.group().strip())
        at = match.end()
    tokens.append("")
    expr, rest = parse_tokens(tokens, 0)
    if tokens[rest]:
        raise ValueError(f"unexpected {tokens[rest]!r} in the expression {text!r}")
    return expr


def parse_tokens(tokens: list[str], at: int, level: int = 0) -> tuple[Expr, int]:
    """The longest expression of operators of at least ``level`` at tokens[at:], and the index after it.

    ``tokens`` ends with an empty one. Raises Unexpected.
    """
    left, at = _parse_atom(tokens, at)
    while tokens[at] in PRECEDENCE and PRECEDENCE[tokens[at]] >= level:
        op = tokens[at]
        right, at = parse_tokens(tokens, at + 1, PRECEDENCE[op] + 1)
        left = Bin(op, left, right)
    return left, at


def _parse_atom(tokens: list[str], at: int) -> tuple[Expr, int]:
    token = tokens[at]
    if token == "-" and tokens[at + 1].isdigit():
        return Int(-int(tokens[at + 1])), at + 2
    if token.isdigit():
        return Int(int(token)), at + 1
    if token == "(":
        inner, at = parse_tokens(tokens, at + 1, 0)
        return inner, _expect(tokens, at, ")")
    if token in FUNCTIONS and tokens[at + 1] == "(":
        a, at = parse_tokens(tokens, at + 2, 0)
        b, at = parse_tokens(tokens, _expect(tokens, at, ","), 0)
        return Bin(token, a, b), _expect(tokens, at, ")")
    if token and (token[0].isalpha() or token[0] == "_"):
        return Sym(token), at + 1
    raise Unexpected(f"expected a number or a name, found {token or 'the end'!r}", at)


def _expect(tokens: list[str], at: int, token: str) -> int:
    if tokens[at] != token:
        raise Unexpected(f"expected {token!r}, found {tokens[at] or 'the end'!r}", at)
    return at + 1
