"""Runs whose coefficients are known: measured as the model says with them."""

from __future__ import annotations

from typing import Any

TRUTH = {
    "dp_overlap_fraction": 0.7, "memory_bound_multiplier": 1.5, "unexplained_seconds": 0.2,
    "unexplained_fraction": 0.03,
}  # fmt: skip

JOBS: tuple[dict[str, Any], ...] = tuple(
    {"tp": tp, "pp": pp, "vp": 1, "dp": dp, "n_gpus": tp * pp * dp, "gbs": gbs, "seq_len": seq,
     "grad_accum": gbs // dp}
    for tp, pp, dp in ((1, 1, 16), (2, 1, 8), (4, 2, 2), (8, 1, 64), (1, 4, 32), (2, 2, 4))
    for gbs, seq in ((64, 8192), (128, 2048))
)  # fmt: skip


FEW = JOBS[::3]
"""Of each kind of parallelism one: enough where it is not about the values that are found."""
