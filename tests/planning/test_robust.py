"""`plan --robust` end to end: chosen by the upper ends, on every layout evaluated one by one."""

from functools import cache
from typing import Any

import pytest

from planner import api
from planner.cost import prediction_intervals as intervals
from planner.cost.context import CostContext
from planner.cost.prediction_intervals import MeasuredInterval, PredictionErrors
from planner.planning.plan import Plan
from planner.problem.scenario import Scenario, Search
from planner.search.space.enumerate import layouts
from tests.scenarios import (
    figure,
    small_accelerator,
    small_scenario,
    small_software,
    small_topology,
)


@cache
def wide(low: float, high: float) -> MeasuredInterval:
    return MeasuredInterval(rows=1, sources=1, low=figure(low), high=figure(high))


def with_bars(monkeypatch: pytest.MonkeyPatch, step: dict[str, float], peak: float = 1.0) -> None:
    """Upper ends of step time by kind (1 elsewhere), and of every peak."""
    made = PredictionErrors(
        coverage=figure(0.8),
        features={},
        step_seconds={kind: wide(0.9, step.get(kind, 1.0)) for kind in intervals.KINDS},
        peak_bytes={kind: wide(0.9, peak) for kind in intervals.KINDS},
    )
    monkeypatch.setattr(intervals, "shipped", lambda: made)
    # the small profile's and part's numbers are assumed: tell layouts apart all the same
    monkeypatch.setattr(intervals, "is_fitted", lambda software: True)
    monkeypatch.setattr(intervals, "is_known", lambda accelerator, precision: True)


def every_layout(scenario: Scenario) -> list[Plan]:
    ctx = CostContext.of(scenario)
    table, _ = layouts(ctx, scenario.search)
    rows: list[dict[str, Any]] = []
    for i in range(len(table)):
        document = table.row(i).to_document()
        rows.append({k: v for k, v in document.items() if v is not None})
    return [plan for plan in api.evaluate_many(scenario, rows) if isinstance(plan, Plan)]


def small(**search: Any) -> Scenario:
    choice: dict[str, Any] = {"robust": True, "tie_fraction": 0.0, "mbs": (1,), "vp": (1,)} | search
    return small_scenario(16, search=Search(**choice))


@cache
def costed() -> list[Plan]:
    """Every layout of the small job that fits, under bars of 1: its kind is that under any."""
    return [p for p in every_layout(small()) if p.memory and p.memory.verdict == "fits"]


@pytest.mark.slow
@pytest.mark.parametrize("high", [1.0, 1.3, 3.0])
def test_the_choice_is_the_least_upper_end_of_all_layouts(
    monkeypatch: pytest.MonkeyPatch, high: float
) -> None:
    with_bars(monkeypatch, {"model-parallel": high})
    found = api.plan(small())
    everyone = costed()
    upper = {"model-parallel": high}
    # under bars of 1 the upper end is the step on a cluster at its own upper end
    least = min(
        (p.step_seconds_high or 0.0) * upper.get(p.interval_kind or "", 1.0) for p in everyone
    )
    assert found.status == "optimal"
    assert found.step_seconds_high == pytest.approx(least, rel=1e-9)
    assert found.objective_seconds == pytest.approx(least, rel=1e-9)
    assert found.step_seconds is not None and found.step_seconds <= least
    assert len(everyone) > 20


def test_a_wide_bar_drives_the_choice_away(monkeypatch: pytest.MonkeyPatch) -> None:
    with_bars(monkeypatch, {"model-parallel": 1.0, "data-parallel": 50.0})
    assert api.plan(small()).interval_kind == "model-parallel"
    with_bars(monkeypatch, {"model-parallel": 50.0, "data-parallel": 1.0})
    assert api.plan(small()).interval_kind == "data-parallel"


def test_equal_bars_choose_as_without(monkeypatch: pytest.MonkeyPatch) -> None:
    with_bars(monkeypatch, dict.fromkeys(intervals.KINDS, 1.4))
    plain, robust = api.plan(small(robust=False)), api.plan(small())
    assert robust.layout == plain.layout and robust.placement == plain.placement
    assert robust.step_seconds == plain.step_seconds
    assert plain.objective_seconds is not None
    assert robust.objective_seconds == pytest.approx(1.4 * plain.objective_seconds, rel=1e-12)


def tight(robust: bool, hbm_bytes: float) -> Scenario:
    part = small_accelerator(hbm_bytes=hbm_bytes)
    return small_scenario(
        16, topology=small_topology(accelerator=part),
        software=small_software(fragile_fraction=0.0),
        search=Search(robust=robust, mbs=(1,), vp=(1,)),
    )  # fmt: skip


def test_memory_must_fit_at_the_upper_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with_bars(monkeypatch, {}, peak=1.25)
    roomy = api.plan(tight(False, 1e12))
    assert roomy.memory is not None and roomy.memory.peak_high_bytes is not None
    between = (roomy.memory.peak_bytes + roomy.memory.peak_high_bytes) / 2
    plain, robust = api.plan(tight(False, between)), api.plan(tight(True, between))
    assert plain.layout == roomy.layout
    assert robust.layout != roomy.layout
    assert robust.memory is not None and robust.memory.peak_high_bytes is not None
    assert robust.memory.peak_high_bytes <= between
    assert plain.search is not None and robust.search is not None
    assert robust.search.shapes < plain.search.shapes


@pytest.mark.slow
def test_infeasible_for_the_bar_alone_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with_bars(monkeypatch, {}, peak=1.25)
    everyone = every_layout(tight(False, 1e12))
    least = min(everyone, key=lambda p: p.memory.peak_bytes if p.memory else 0.0).memory
    assert least is not None and least.peak_high_bytes is not None
    capacity = (least.peak_bytes + least.peak_high_bytes) / 2
    found = api.plan(tight(True, capacity))
    assert found.status == "infeasible" and found.nearest_miss is not None
    over = least.peak_high_bytes - capacity
    assert found.nearest_miss["over_bytes"] == pytest.approx(over, rel=1e-9)
    assert {"search.robust": False} in [dict(r["change"]) for r in found.relaxations]
    assert api.plan(tight(False, capacity)).status == "optimal"


def test_bars_of_a_plan_are_its_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    with_bars(monkeypatch, {"model-parallel": 1.3})
    found = api.evaluate(small(), "tp=2,pp=2")
    assert found.interval_kind == "model-parallel" and found.interval_coverage == 0.8
    assert found.step_seconds_low == pytest.approx(0.9 * (found.step_seconds or 0), rel=1e-12)
    assert found.step_seconds_high == pytest.approx(1.3 * (found.step_seconds or 0), rel=1e-12)
    assert found.memory is not None and found.memory.peak_low_bytes is not None
    runtime = found.memory.terms["runtime"]
    held = found.memory.peak_bytes - runtime
    assert found.memory.peak_low_bytes == pytest.approx(0.9 * held + runtime, rel=1e-9)


@pytest.mark.parametrize("name", ["llama2-7b-a100pciex16", "llama3-8b-h100x8"])
def test_shipped_jobs_end_no_later_than_plain_plans(name: str) -> None:
    plain = api.plan(api.load_scenario(name))
    robust = api.plan(api.load_scenario(name, {"search.robust": "true"}))
    assert plain.step_seconds_high is not None and robust.step_seconds_high is not None
    assert robust.step_seconds_high <= plain.step_seconds_high * (1 + 0.005)
    assert robust.memory is not None and robust.memory.peak_high_bytes is not None
    assert robust.memory.peak_high_bytes <= robust.memory.capacity_bytes
