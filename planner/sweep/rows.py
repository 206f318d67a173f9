"""One point's result as a flat row: short names, plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planner.layouts.layout import Layout
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario

FIGURES = (
    "step_seconds", "objective_seconds", "bound_seconds", "gap_fraction", "mfu", "hfu",
    "tokens_per_second", "tokens_per_second_per_accelerator", "days", "accelerator_hours", "cost",
)  # fmt: skip
"""Columns that are attributes of a plan, under the same names."""

COLUMNS = (
    "status", "reason", "model", "topology", "software", "num_accelerators", *FIGURES, "layout",
    "peak_bytes", "memory_verdict", "wall_seconds",
)  # fmt: skip
"""Columns of every row, besides point, key, the axes, layout.* and time.*."""

TIMING = ("wall_seconds",)
"""Columns that differ from run to run."""

Cells = dict[str, Any]


def cells_of(plan: Plan, scenario: Scenario, wall_seconds: float) -> Cells:
    """The cells of a plan; without a layout, those that need one are None or missing."""
    cells: Cells = dict.fromkeys(COLUMNS)
    cells.update(_subject(scenario))
    cells.update({name: getattr(plan, name) for name in FIGURES})
    cells.update(status=plan.status, reason=_reason(plan), wall_seconds=wall_seconds)
    if plan.layout is not None:
        cells["layout"] = plan.layout.label()
        # one flat row, so that every format can hold it
        cells.update({f"layout.{key}": value for key, value in plan.layout.to_document().items()})
    cells.update({f"time.{term}": value for term, value in (plan.time or {}).items()})
    if plan.memory is not None:
        cells.update(peak_bytes=plan.memory.peak_bytes, memory_verdict=plan.memory.verdict)
    return cells


def failed_cells(reason: str, scenario: Scenario | None = None, wall_seconds: float = 0.0) -> Cells:
    """The cells of a point that could not be planned."""
    cells: Cells = dict.fromkeys(COLUMNS)
    if scenario is not None:
        cells.update(_subject(scenario))
    return {**cells, "status": "failed", "reason": reason, "wall_seconds": wall_seconds}


def _subject(scenario: Scenario) -> Cells:
    return {
        "model": scenario.model.name,
        "topology": scenario.topology.name,
        "software": scenario.software.name,
        "num_accelerators": scenario.num_accelerators,
    }


def _reason(plan: Plan) -> str | None:
    """Why there is no layout."""
    if plan.layout is not None:
        return None
    if plan.status == "unknown":
        return "the time limit passed before any layout was evaluated"
    miss = plan.nearest_miss
    if miss is None:
        return "no legal layout can be placed"
    return (
        f"no layout fits; {Layout.from_document(miss['layout']).label()} is the nearest, "
        f"over by {miss['over_bytes'] / 1e9:.1f} GB"
    )


def columns_of(rows: Iterable[Cells]) -> list[str]:
    """Every column of some rows, in the order in which they come."""
    return list(dict.fromkeys(name for cells in rows for name in cells))


def without_timing(row: Mapping[str, Any]) -> Cells:
    """The row without the columns that differ from run to run."""
    return {name: value for name, value in row.items() if name not in TIMING}
