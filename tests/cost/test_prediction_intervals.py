"""Prediction intervals of jobs: which kind one is, bounds by hand, one formula for tables."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.cost import memory
from planner.cost import prediction_intervals as intervals
from planner.cost.context import CostContext
from planner.cost.prediction_intervals import KINDS, Interval, MeasuredInterval, PredictionErrors
from planner.errors import InputError
from planner.inputs.files import data_root, names
from planner.inputs.quantities import Figure
from planner.inputs.values import load, parse
from planner.layouts.layout import Layout, LayoutTable
from planner.problem.blocks import MoE
from planner.problem.hardware import Accelerator
from planner.problem.software import Software
from tests.scenarios import (
    accelerator,
    context,
    figure,
    model,
    software,
    topology,
    training,
)

FITTED = load("megatron-core", "software", Software).coefficients
CLOCK = dict.fromkeys(("bf16", "fp8"), Figure(0.9, "test", "fitted"))
LAYOUTS = [
    Layout(dp_shard=8), Layout(tp=2, dp_shard=4, sp=True), Layout(cp=2, dp_shard=4),
    Layout(pp=4, dp_shard=2, num_microbatches=4),
]  # fmt: skip


def errors(**ends: tuple[float, float]) -> PredictionErrors:
    """Intervals whose bounds are given by kind ('_' for '-'), 1 elsewhere."""
    table = {
        kind: MeasuredInterval(rows=1, sources=1, low=figure(low), high=figure(high))
        for kind in KINDS
        for low, high in [ends.get(kind.replace("-", "_"), (1.0, 1.0))]
    }
    return PredictionErrors(coverage=figure(0.8), features={}, step_seconds=table, peak_bytes=table)


def fitted(**changes: Any) -> CostContext:
    part = topology(accelerator=accelerator().replace(sustained_fraction=CLOCK))
    return context(
        software=software().replace(coefficients=FITTED), **({"topology": part} | changes)
    )


def kind(ctx: CostContext, layout: Layout) -> str:
    return KINDS[int(intervals.kind_index(ctx, layout))]


def test_kinds_of_layouts() -> None:
    ctx = fitted()
    assert [kind(ctx, layout) for layout in LAYOUTS] == [
        "data-parallel", "model-parallel", "model-parallel", "model-parallel",
    ]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_a_scenario_says_comes_before_its_layout(layout: Layout) -> None:
    assert kind(fitted(training=training(precision="fp8")), layout) == "low-precision"
    known = topology(accelerator=accelerator().replace(sustained_fraction=CLOCK))
    fp8 = training(precision="fp8")
    assert kind(context(training=fp8, topology=known), layout) == "new-software"
    assert kind(fitted(training=fp8, topology=topology()), layout) == "new-accelerator"


def test_a_profile_is_fitted_if_some_number_is() -> None:
    plain = software()
    assert not intervals.is_fitted(plain)
    one = plain.coefficients.replace(dp_overlap_fraction=FITTED.dp_overlap_fraction)
    assert FITTED.dp_overlap_fraction.status == "fitted"
    assert intervals.is_fitted(plain.replace(coefficients=one))


def test_shipped_profiles_that_no_run_was_fitted_to() -> None:
    profiles = [load(name, "software", Software) for name in names("software")]
    unfitted = {p.name for p in profiles if not intervals.is_fitted(p)}
    assert unfitted == {
        "jax-xla", "deepseek", "megatron-zero-bubble", "torchtitan-eager", "fallback"
    }  # fmt: skip


def test_shipped_parts_that_no_run_was_fitted_to() -> None:
    parts = [load(name, "accelerator", Accelerator) for name in names("accelerator")]
    known = {
        part.name
        for part in parts
        if "bf16" in part.sustained_fraction and intervals.is_known(part, "bf16")
    }
    assert {"h100-sxm-80gb", "a100-sxm-80gb", "b200-sxm-180gb"} <= known
    assert not known & {"mi300x", "tpu-v5p", "trainium2"}


def test_bounds_by_hand() -> None:
    given = errors(data_parallel=(0.9, 1.1), model_parallel=(0.7, 1.5))
    ctx = fitted()
    for layout, bounds in ((LAYOUTS[0], (0.9, 1.1)), (LAYOUTS[1], (0.7, 1.5))):
        interval = intervals.step_interval(given, ctx, layout)
        assert (float(interval.low), float(interval.high)) == bounds


def test_the_runtime_term_of_memory_is_not_stretched() -> None:
    given, ctx = errors(model_parallel=(0.5, 2.0)), fitted()
    usage, peak = memory.worst_stage(ctx, LAYOUTS[1])
    runtime = float(np.max(usage.runtime))
    interval = intervals.peak_interval(given, ctx, LAYOUTS[1], usage)
    assert float(interval.low) == pytest.approx(runtime + (float(peak) - runtime) / 2, rel=1e-12)
    assert float(interval.high) == pytest.approx(runtime + (float(peak) - runtime) * 2, rel=1e-12)


@pytest.mark.parametrize("number", range(len(LAYOUTS)))
def test_table_equals_scalar(number: int) -> None:
    given, ctx = errors(data_parallel=(0.9, 1.1), model_parallel=(0.7, 1.5)), fitted()
    table = LayoutTable.from_layouts(LAYOUTS)

    def peak_interval(given: PredictionErrors, ctx: CostContext, layout: Any) -> Interval:
        return intervals.peak_interval(given, ctx, layout, memory.worst_stage(ctx, layout)[0])

    for interval in (intervals.step_interval, peak_interval):
        of_table = interval(given, ctx, table)
        alone = interval(given, ctx, LAYOUTS[number])
        for column, one in ((of_table.low, alone.low), (of_table.high, alone.high)):
            assert column.dtype == float
            assert float(column[number]) == pytest.approx(float(one), rel=1e-12)


def test_shipped_intervals_are_read_once_and_hold_their_prediction() -> None:
    shipped = intervals.shipped()
    assert shipped is intervals.shipped()
    for table in (shipped.step_seconds, shipped.peak_bytes):
        assert list(table) == list(KINDS)
        assert all(0.5 < end.low <= 1 <= end.high < 2 for end in table.values())
    new, known = (shipped.step_seconds[k] for k in ("new-software", "model-parallel"))
    assert new.high > known.high  # what was never fitted is less certain
    assert shipped.step_seconds["new-accelerator"].high > known.high


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [("low: {value: 0.", "low: {value: 1.", "low"), ("data-parallel:", "data parallel:", None),
     ("status: fitted", "status: guessed", "status")],
)  # fmt: skip
def test_an_edited_file_is_refused(old: str, new: str, key: str | None) -> None:
    text = (data_root() / intervals.SHIPPED).read_text("utf-8")
    assert old in text
    with pytest.raises(InputError) as caught:
        parse(text.replace(old, new, 1), "errors.yaml", PredictionErrors)
    assert key is None or key in str(caught.value)
    assert caught.value.allowed


def test_experts_are_a_kind_of_their_own() -> None:
    """The kind is known before their cost is."""
    moe = MoE(num_experts=4, top_k=2, expert_ffn_hidden_size=64)
    ctx = replace(fitted(), model=model(moe=moe))
    measured = {"experts": ["toy-part"]}
    assert KINDS[int(intervals.kind_index(ctx, LAYOUTS[0], measured))] == "experts"


def test_a_feature_that_no_run_has_on_the_accelerator_is_a_kind_of_its_own() -> None:
    given = errors(unseen_feature=(0.9, 1.4)).replace(features={"experts": ("other-part",)})
    moe = MoE(num_experts=4, top_k=2, expert_ffn_hidden_size=64)
    ctx = replace(fitted(), model=model(moe=moe, attention_sinks=True))
    found = KINDS[int(intervals.kind_index(ctx, LAYOUTS[1], given.features))]
    assert found == "unseen-feature"
    assert intervals.reason(given, ctx, found) == (
        "no measured run has experts or attention sinks on toy-part; 1 runs of 1 sources, each "
        "left out"
    )
    assert intervals.reason(given, ctx, "experts") == "1 runs of 1 sources, each left out"
    known = {"experts": ["toy-part"], "attention sinks": ["toy-part"]}
    assert KINDS[int(intervals.kind_index(ctx, LAYOUTS[1], known))] == "experts"
