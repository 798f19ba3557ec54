"""Time of the checker against the number of statements: ``python benchmarks/check_scaling.py [--factors 1,10,100]``.

A safe kernel's work is repeated: one after the other ('after': the body, or the body of each role, with its loops), or
inside its innermost loops ('inside'). Every repetition is as long as the first, uses the same shared memory and writes
outputs of its own. Time per statement should not grow with their number; 'growth' is its ratio to the row before.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tidegate.check import check
from tidegate.ir import tir
from tidegate.ir.expr import Sym, substitute
from tidegate.ir.text import parse_kernel

KERNELS = Path(__file__).parents[1] / "tests" / "mutants" / "kernels"
AFTER = ("row_private", "transpose4", "transpose_bar", "transpose_ring", "gemm_ring3", "tma_ring", "ping_pong")
INSIDE = ("row_private", "transpose4", "transpose_bar", "tma_ring", "ping_pong")

Body = tuple[tir.Stmt, ...]
"""TODO"""
