"""A measured run against its prediction: an accounting error, as predicted, or what explains it.

The decision tree of a low MFU. Above the peak nothing but counting can be wrong. Near the
prediction the run does what its walls allow: the wall says which metric to judge it by. Below,
seconds are unexplained: what the prediction counts on and may not be in force is switched off one
by one, and what may be slow is slowed until the step takes as long as measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, Literal

from planner.advise.baseline import (
    Baseline,
    with_coefficient,
    with_hbm_faster,
    with_slow_ranks,
    with_slow_tier,
)
from planner.advise.changes import Change, try_change
from planner.advise.ledger import Regime, regime
from planner.advise.measured import Measurement, read_measured
from planner.advise.mfu_conventions import Convention, conventions
from planner.cost import flops
from planner.cost.context import CostContext
from planner.errors import InputError
from planner.layouts.keys import RECOMPUTE
from planner.layouts.rank_orders import order_splits
from planner.planning.document import document
from planner.planning.plan import Plan
from planner.planning.solve import chosen_scenario, evaluate, plan
from planner.problem.scenario import Scenario, ScenarioLike, load_scenario
from planner.search.space.given import GivenLayout

NEAR_FRACTION = 0.10
"""What counts as predicted: nearly four in five of the published runs lie within it."""

SMALL_FRACTION = 0.05
"""Suspects that explain less of the unexplained seconds are left out."""

MOST_FACTOR = 100.0
"""Nothing is suspected of being slower than this many times."""

Verdict = Literal["accounting-error", "as-predicted", "below", "above"]


@dataclass(frozen=True, slots=True)
class Suspect:
    """What could hide unexplained seconds.

    kind off: something that the prediction counts on is not in force; step_seconds is the step
    without it, and explained_fraction what that explains of the unexplained time.
    kind slow: something would have to be `factor` times slower to explain all; `value` is then its
    rate or time in `unit`.
    """

    id: str
    kind: Literal["off", "slow"]
    text: str
    step_seconds: float
    explained_fraction: float
    factor: float | None = None
    value: float | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A measured run and the prediction for its layout.

    measured: what was given. claimed_mfu: the MFU that was given, or that the TFLOP/s given make;
    mfu: that of the step time, counted as the prediction is. unexplained_seconds: by how much the
    step time exceeds the prediction, None where no believable time is known.
    """

    plan: Plan
    measured: Mapping[str, float]
    verdict: Verdict
    near_fraction: float
    claimed_mfu: float | None
    mfu: float | None
    step_seconds: float | None
    predicted_mfu: float
    predicted_step_seconds: float
    unexplained_seconds: float | None
    conventions: tuple[Convention, ...]
    regime: Regime
    suspects: tuple[Suspect, ...]
    warnings: tuple[str, ...]

    def to_document(self) -> dict[str, Any]:
        """The diagnosis as one JSON document."""
        return document(self)


def diagnose(
    scenario: ScenarioLike,
    measured: str | Mapping[str, float | str],
    layout: GivenLayout | None = None,
) -> Diagnosis:
    """A measured run (mfu, step_seconds, tokens_per_second, tflops) against its prediction.

    layout: the one that ran; without it the best plan's is compared, with a warning.

    Raises:
        IllegalLayoutError, InputError: as `evaluate`, or a measured value is wrong, or no layout
            is given and none fits.
    """
    scenario = load_scenario(scenario)
    given = read_measured(measured)
    if layout is not None:
        return diagnose_plan(scenario, evaluate(scenario, layout), given)
    best = plan(scenario)
    if best.layout is None:
        raise InputError("no layout fits to compare with", key="--layout", allowed="the one run")
    warning = "no layout was given: compared with the best plan, not with what ran (--layout)"
    return diagnose_plan(chosen_scenario(scenario, best), best, given, (warning,))


def diagnose_plan(
    scenario: Scenario, plan: Plan, given: Mapping[str, float], warnings: tuple[str, ...] = ()
) -> Diagnosis:
    """A run measured with the plan's layout, against the prediction.

    given: some of mfu, step_seconds, tokens_per_second, tflops, as `read_measured` returns them.

    Raises:
        InputError: the plan holds no layout.
    """
    base = Baseline.of(scenario, plan)
    run = Measurement.of(base.ctx, given)
    at_peak = flops.model_flops(base.ctx) / (base.ctx.num_accelerators * base.ctx.peak_flops)
    predicted_mfu = at_peak / base.step_seconds
    mfu = at_peak / run.step_seconds
    believable = mfu <= 1.0
    verdict = _verdict(base, run, mfu)
    beyond = run.step_seconds - base.step_seconds if believable else None
    below = beyond is not None and beyond > NEAR_FRACTION * base.step_seconds
    return Diagnosis(
        plan=plan,
        measured=dict(given),
        verdict=verdict,
        near_fraction=NEAR_FRACTION,
        claimed_mfu=run.claimed_mfu,
        mfu=mfu if run.timed else None,
        step_seconds=run.step_seconds if believable else None,
        predicted_mfu=predicted_mfu,
        predicted_step_seconds=base.step_seconds,
        unexplained_seconds=beyond,
        conventions=_conventions(base, run, mfu, predicted_mfu, verdict),
        regime=regime(base),
        suspects=tuple(suspects(base, run.step_seconds)) if below else (),
        warnings=(*warnings, *_memory_warning(plan), *plan.warnings),
    )


def _memory_warning(plan: Plan) -> Iterator[str]:
    memory = plan.memory
    if memory is not None and memory.verdict == "no":
        need, have = memory.peak_bytes / 1e9, memory.capacity_bytes / 1e9
        yield (
            f"the prediction of memory is {need:.1f} of {have:.1f} GB, yet the run did fit: is "
            "this the layout that ran?"
        )


def _verdict(base: Baseline, run: Measurement, mfu: float) -> Verdict:
    claimed = mfu if run.claimed_mfu is None else run.claimed_mfu
    if max(claimed, mfu) > 1.0 or abs(claimed / mfu - 1.0) > NEAR_FRACTION:
        return "accounting-error"
    ratio = run.step_seconds / base.step_seconds
    if ratio > 1.0 + NEAR_FRACTION:
        return "below"
    return "above" if ratio < 1.0 - NEAR_FRACTION else "as-predicted"


def _conventions(
    base: Baseline, run: Measurement, mfu: float, predicted_mfu: float, verdict: Verdict
) -> tuple[Convention, ...]:
    """Conventions of the claim, against the step time's MFU where one was measured."""
    if verdict == "as-predicted":
        return ()
    counted = run.claimed_mfu is not None
    claimed = mfu if run.claimed_mfu is None else run.claimed_mfu
    by_time = run.timed and counted and mfu <= 1.0 and abs(claimed / mfu - 1.0) > NEAR_FRACTION
    reference = mfu if by_time else predicted_mfu
    wrong = verdict == "accounting-error"
    known = conventions(base, claimed, reference, NEAR_FRACTION, counted, counted and wrong)
    return known if wrong else tuple(c for c in known if c.explains)


# ---------------------------------------------------------------- what hides unexplained seconds


def suspects(base: Baseline, measured_seconds: float) -> Iterator[Suspect]:
    """What may be off, nearest to explaining all first; then what may be slow, by rising factor."""
    missing = measured_seconds - base.step_seconds
    off = [
        Suspect(id_, "off", text, step, (step - base.step_seconds) / missing)
        for id_, text, step in (*_settings_off(base), *_other_ranks(base))
        if step - base.step_seconds > SMALL_FRACTION * missing
    ]
    yield from sorted(off, key=lambda suspect: abs(suspect.explained_fraction - 1.0))
    slow = _slow(base, measured_seconds)
    yield from sorted(slow, key=lambda suspect: inf if suspect.factor is None else suspect.factor)


_Off = tuple[str, str, float]
"""Id and text of what is not in force, and the step in seconds without it."""


def _settings_off(base: Baseline) -> Iterator[_Off]:
    """Settings that the prediction counts on."""
    layout, training = base.layout, base.ctx.training
    changes: dict[str, tuple[str, Change]] = {}
    on = [axis for axis in layout.overlap.split("+") if axis != "none"]
    for axis in on:
        left = "+".join(other for other in on if other != axis) or "none"
        text = f"traffic of {axis} does not run beside computation"
        changes[f"overlap:{axis}"] = (text, Change(layout={"overlap": left}))
    if len(on) > 1:
        text = "no traffic runs beside computation"
        changes["overlap"] = (text, Change(layout={"overlap": "none"}))
    if layout.pp > 1 and layout.schedule != "1f1b":
        text = "the stages are not interleaved"
        if layout.schedule != "interleaved":
            text = f"the schedule is 1f1b, not {layout.schedule}"
        changes["virtual-stages"] = (text, Change(layout={"vp": 1, "schedule": "1f1b"}))
    heavier = RECOMPUTE[RECOMPUTE.index(layout.recompute) + 1 :]
    for recompute in (name for name in heavier if name in base.ctx.software.recompute):
        text = f"recompute is {recompute}"
        changes[f"recompute:{recompute}"] = (text, Change(layout={"recompute": recompute}))
    if layout.sp and base.ctx.software.sequence_parallel == "optional":
        changes["sequence-parallel"] = ("sequence parallelism is off", Change(layout={"sp": False}))
    for backend in base.ctx.accelerator.attention:
        change = Change(set={"training.attention": backend})
        changes[f"attention:{backend}"] = (f"attention runs by {backend}", change)
    if base.ctx.low_precision:
        text = f"main matmuls run in bf16, not {training.precision}"
        changes["precision"] = (text, Change(set={"training.precision": "bf16"}))
    for id_, (text, change) in changes.items():
        step = try_change(base, change, limited=False).step_seconds
        if step is not None:
            yield id_, text, step


def _other_ranks(base: Baseline) -> Iterator[_Off]:
    """The ranks in another order of the software's, and pairs of groups in each other's place."""
    for name, axes in base.ctx.software.orders.items():
        if name != base.plan.rank_order_name:
            splits = order_splits(base.layout, axes, base.ctx.topology.widths)
            step = replace(base, splits=splits).step()
            yield f"order:{name}", f"the ranks are in the order {name}", step
    for swap in base.plan.swaps:
        if swap.seconds is not None:
            first, second = swap.atoms
            text = f"the ranks put {first} and {second} in each other's place"
            yield f"swap:{first}-{second}", text, base.step_seconds + swap.seconds


@dataclass(frozen=True, slots=True)
class _Slowdown:
    """Something that may be slow: the context in which it is `factor` times slower.

    now: its rate, or its time where `unit` is s.
    """

    id: str
    text: str
    slowed: Callable[[float], CostContext]
    now: float
    unit: str


def _slow(base: Baseline, measured_seconds: float) -> Iterator[Suspect]:
    """What would have to be slower, and how many times, for the step to take as long."""
    for slowdown in _slowdowns(base.ctx):
        factor = slow_factor(partial(_slowed_step, base, slowdown), measured_seconds)
        if factor is not None:
            now, is_time = slowdown.now, slowdown.unit == "s"
            value = now * factor if is_time else now / factor
            yield Suspect(
                slowdown.id, "slow", slowdown.text, measured_seconds, 1.0, factor, value,
                slowdown.unit,
            )  # fmt: skip
    yield _stall(base, measured_seconds)


def _slowed_step(base: Baseline, slowdown: _Slowdown, factor: float) -> float:
    return base.step(slowdown.slowed(factor))


def _slowdowns(ctx: CostContext) -> Iterator[_Slowdown]:
    for position, tier in enumerate(ctx.topology.tiers):
        yield _Slowdown(
            id=f"tier:{tier.name}",
            text=f"the links of {tier.name} are slow",
            slowed=partial(with_slow_tier, ctx, position),
            now=tier.bytes_per_second,
            unit="B/s",
        )
    yield _Slowdown(
        id="rank",
        text="one rank, or all, computes slowly: the step waits for the slowest",
        slowed=partial(with_slow_ranks, ctx),
        now=ctx.sustained_flops,
        unit="FLOP/s",
    )
    yield _Slowdown(
        id="hbm",
        text="memory-bound kernels are unfused, or the HBM is slow",
        slowed=lambda factor: with_hbm_faster(ctx, 1.0 / factor),
        now=ctx.hbm_bytes_per_second,
        unit="B/s",
    )
    launch_seconds = float(ctx.software.coefficients.host_seconds_per_kernel)
    if launch_seconds > 0:
        yield _Slowdown(
            id="host",
            text="the host starts kernels slowly",
            slowed=lambda factor: with_coefficient(
                ctx, "host_seconds_per_kernel", launch_seconds * factor
            ),
            now=launch_seconds,
            unit="s",
        )


def _stall(base: Baseline, measured_seconds: float) -> Suspect:
    """Time outside the model that would explain all."""
    seconds = measured_seconds - base.step_seconds
    text = "the step waits outside the model: input data, checkpoints, logging"
    return Suspect("stall", "slow", text, measured_seconds, 1.0, None, seconds, "s")


def slow_factor(step: Callable[[float], float], target_seconds: float) -> float | None:
    """The factor from 1 to MOST_FACTOR at which a step takes `target_seconds`; None above.

    step: seconds by factor, which never fall with it.
    """
    low, high = 1.0, MOST_FACTOR
    if step(high) < target_seconds:
        return None
    while high / low > 1.0 + 1e-5:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if step(middle) < target_seconds else (low, middle)
    return high
