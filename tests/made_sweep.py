"""Rows of a sweep with made-up but consistent figures, and hostile names for pages."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from planner.planning.plan import Plan
from planner.problem.scenario import inputs_sha256

AXES = ("num_accelerators", "training.sequence_length")

HOSTILE = (
    "<script>window.hit=1</script>",
    "\"'><img src=x onerror=window.hit=1>",
    "אבג\u202etxt.exe \u0007 $x_1$ {{7*7}} &amp;",
    "n" * 300,
)
"""Names that a page must show as they are, or with their control characters replaced."""


@dataclass(frozen=True)
class MadeSweep:
    """A sweep with rows and no plans."""

    axes: Sequence[str]
    rows: Sequence[Mapping[str, Any]]

    def plan(self, point: int) -> Plan:
        raise AssertionError("the page of a sweep needs no plans")


def made_row(point: int, count: int, length: int, **more: Any) -> dict[str, Any]:
    """A point on `count` accelerators: efficiency falls by 4 % with every doubling beyond 8."""
    doublings = (count // 8).bit_length() - 1
    rate = 1000.0 * 0.96**doublings * 8192 / length
    pp = 1 if count < 64 else 2
    step = 1024 * length / (rate * count)
    return {
        "point": point, "num_accelerators": count, "training.sequence_length": length,
        "status": "optimal", "reason": None, "model": "llama3-8b", "topology": "dgx-h100",
        "software": "megatron-core", "step_seconds": step, "gap_fraction": 0.0,
        "mfu": 0.55 * 0.96**doublings, "hfu": 0.56 * 0.96**doublings,
        "tokens_per_second": rate * count, "tokens_per_second_per_accelerator": rate,
        "days": 1e12 / (rate * count) / 86400, "cost": 2.5 * 1e12 / rate / 3600,
        "layout": f"tp8 pp{pp} dp{max(count // 8 // pp, 1)} mbs1 zero1", "layout.tp": 8,
        "layout.cp": 1, "layout.ep": 1, "layout.pp": pp, "layout.dp": max(count // 8 // pp, 1),
        "time.compute_gemm": 0.7 * step, "time.tp": 0.2 * step, "time.bubble": 0.1 * step,
        "peak_bytes": 60e9, "memory_verdict": "fits",
    } | more  # fmt: skip


def without_plan(row: Mapping[str, Any], status: str, reason: str) -> dict[str, Any]:
    """The row of a point that came to nothing."""
    known = ("point", *AXES, "model", "topology", "software")
    return {key: row[key] for key in known} | {"status": status, "reason": reason}


def made_rows(
    counts: Sequence[int] = (8, 16, 32, 64, 128), lengths: Sequence[int] = (4096, 8192, 16384)
) -> list[dict[str, Any]]:
    """A full grid, two of whose points have no plan."""
    rows = [made_row(i, n, length) for i, (n, length) in enumerate(product(counts, lengths))]
    rows[2] = without_plan(rows[2], "infeasible", "no layout fits; tp8 exceeds by 3.1 GB")
    if len(rows) > 5:
        rows[5] = without_plan(rows[5], "failed", "training.precision: fp8 needs Hopper")
    return rows


def hostile_sweep() -> MadeSweep:
    """Rows whose axis values, layouts and reasons are hostile."""
    rows = []
    for i, (name, count) in enumerate(product(HOSTILE, (8, 16, 32))):
        rows.append(made_row(i, count, 4096, model=name, reason=name, layout=f"tp8 {name}"))
    rows[0] = without_plan(rows[0], "failed", f"{HOSTILE[0]}: {HOSTILE[1]}")
    return MadeSweep(("num_accelerators", "model"), rows)


def hostile_plan(plan: Plan) -> Plan:
    """The plan of a scenario with hostile names, with a hash that agrees."""
    inputs = copy.deepcopy(dict(plan.inputs))
    inputs["model"]["name"] = HOSTILE[0]
    inputs["model"]["source"] = HOSTILE[2]
    inputs["topology"]["name"] = HOSTILE[1]
    inputs["topology"]["description"] = HOSTILE[3]
    return replace(
        plan, inputs=inputs, inputs_sha256=inputs_sha256(inputs), warnings=HOSTILE,
    )  # fmt: skip
