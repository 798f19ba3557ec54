"""Runs the examples at small sizes, for compute-sanitizer to watch. Uses NumPy arrays: no framework in the process."""

from __future__ import annotations

import sys

import numpy as np
from cases import Case, gemm, inputs, load

RUNS = (
    Case("row_stage", "row_stage", ()),
    Case("row_ring", "row_ring", (("R", 5),), (("STAGES", 3),)),
    Case("transpose", "transpose", (("M", 36), ("N", 100)), (("warps", 1), ("STAGES", 1))),
    Case("transpose", "transpose", (("M", 36), ("N", 100)), (("warps", 4), ("STAGES", 1))),
    Case("transpose", "transpose", (("M", 64), ("N", 96)), (("warps", 4), ("STAGES", 2))),
    gemm("gemm_v0", 130, 136, 72),
    gemm("gemm_v1", 130, 136, 72),
    gemm("gemm_v2", 130, 264, 72),
    gemm("gemm_v2", 128, 256, 384),
    gemm("gemm_v2", 128, 256, 384, plan="in_order"),
    Case("stencil", "jacobi", (("H", 33), ("W", 72))),
    Case("stencil", "causal_conv", (("T", 70), ("C", 136), ("K", 3))),
    Case("gather_rows", "bag", (("B", 3), ("N", 4), ("R", 40))),
    Case("gather_rows", "bag_gradient", (("B", 3), ("N", 2), ("R", 40))),
    Case("gather_rows", "expert", (("G", 2), ("T", 50), ("N", 72), ("K", 40))),
)

for case in RUNS:
    kernel = getattr(load(case.file), case.kernel)
    options = dict(case.options)
    constants = {k: v for k, v in options.items() if k != "plan"}
    arrays = inputs(kernel.program(**constants), dict(case.sizes))
    kernel(*arrays.values(), **options)
    if any(np.isnan(a.astype(np.float32)).any() for a in arrays.values()):
        sys.exit(f"{case}: an output element was not written")
    print(case, "done", flush=True)
