"""How far numbers have to be told apart: beyond all that conditions compare a form with, its values are alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidegate.check.control import Index, Linear, Reader, Term, term_expression, tests_of
from tidegate.check.survey import Survey
from tidegate.ir import expr as ex
from tidegate.ir import tir

Shape = tuple[tuple[int, str], ...]
"""Coefficients and kinds of the terms of a form, sorted: words are told apart by their tensors only."""


class Limits:
    """Per shape the values between which conditions and bounds can tell numbers apart. ``most``: for all others;
    ``counts``: whether it is remembered how many trips a loop had, or only that it ran."""

    def __init__(self, kernel: tir.Kernel, reader: Reader, survey: Survey, most: int, counts: bool) -> None:
        self.most = most
        loads = (s for s in tir.walk(kernel.body) if isinstance(s, tir.LdScalar))
        self.source: dict[str, str] = {str(s.scalar): str(s.src.tensor) for s in loads}
        self.found: dict[Shape, tuple[int, int]] = {}
        for form, low, high in _compared(kernel, reader, survey, counts):
            for sign in (1, -1):
                ends = sorted((sign * low, sign * high))
                shape = self._shape(form, sign, {})
                before = self.found.get(shape, (ends[0], ends[1]))
                self.found[shape] = min(before[0], ends[0]), max(before[1], ends[1])

    def of(self, form: Linear, tensors: Mapping[str, str]) -> tuple[int, int]:
        """The values of a form, its constant aside, up to which all smaller ones are alike, and from which on all
        larger ones are. ``tensors``: of the words in it."""
        return self.found.get(self._shape(form, 1, tensors), (-self.most, self.most))

    def _shape(self, form: Linear, sign: int, tensors: Mapping[str, str]) -> Shape:
        return tuple(sorted((sign * c, self._kind(term, tensors)) for term, c in form.terms))

    def _kind(self, term: Term, tensors: Mapping[str, str]) -> str:
        if isinstance(term, Index):
            return self._name(term.name, tensors)
        names = ex.symbols(term_expression(term))
        return f"{type(term).__name__} {sorted({self._name(n, tensors) for n in names})}"

    def _name(self, name: str, tensors: Mapping[str, str]) -> str:
        return f"{tensors[name]}[]" if name in tensors else f"{self.source[name]}[]" if name in self.source else name


def _compared(kernel: tir.Kernel, reader: Reader, survey: Survey, counts: bool) -> Iterator[tuple[Linear, int, int]]:
    """Forms that the kernel looks at, with the smallest and the largest value that it tells from others."""
    for stmt in tir.walk(kernel.body):
        if isinstance(stmt, tir.If):
            for test in tests_of(reader.formula(stmt.condition)):
                const, one = test.value.const, test.op != ">="
                yield test.value, -const - 1, -const + one
        elif isinstance(stmt, tir.For):
            length = reader.linear(stmt.stop).plus(reader.linear(stmt.start), -1)
            most = sum(survey.edges(stmt.index)) if counts else 0
            yield length, -length.const - 1, most - length.const + 1
