"""A software profile tuned to two or three runs of a user: `planner calibrate runs FILE`.

    calibration = tune_profile(runs)
    calibration.fit.moved, calibration.at_bounds

The fit is `profile_fit`, with the numbers of the profile that the runs name for its prior, and no
number moving more than REACH_SCALES of its scales: so few runs shift few numbers a little, and none
far. Every run counts in full: they are of the stack to be predicted, not a sample of many stacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.cost import flops
from planner.cost.context import CostContext
from planner.cost.traffic import Splits
from planner.errors import InputError
from planner.evidence.profile_fit import (
    COEFFICIENTS,
    Coefficient,
    ProfileFit,
    coefficients_of,
    fit_profile,
    reachable,
    step_seconds,
)
from planner.layouts.layout import Layout
from planner.problem.scenario import Scenario

REACH_SCALES = 2.0
"""Scales that a number may move."""

MIN_RUNS = 2

MIN_GAIN_FRACTION, MIN_GAIN = 0.05, 0.001
"""What a fit must take off the mean error: so much of it, and so much absolutely; less is noise."""

AT_BOUND_SCALES = 0.01
"""A number is at a bound of its reach if it is within so many scales of it."""


@dataclass(frozen=True, slots=True)
class OwnRun:
    """A measured run of a user, with its prediction.

    splits: how many members of each group each tier joins. step_seconds: predicted, of a whole
    step. path, line: where the run was given.
    """

    name: str
    scenario: Scenario
    layout: Layout
    splits: Splits
    step_seconds: float
    measured_seconds: float
    path: str
    line: int | None = None

    @property
    def source(self) -> str:
        """A source of its own, so that the fit counts the run in full."""
        return self.name

    @property
    def measured_mfu(self) -> float:
        """Model FLOPs of a step / (measured seconds · dense peak FLOP/s of all accelerators)."""
        ctx = CostContext.of(self.scenario)
        peak = ctx.num_accelerators * ctx.peak_flops
        return float(flops.model_flops(ctx) / (peak * self.measured_seconds))


@dataclass(frozen=True, slots=True)
class OwnCalibration:
    """A profile tuned to runs, and each run before and after.

    after_seconds: predictions of `runs` with the fitted numbers. bounds: coefficient → the lowest
    and highest value within reach; at_bounds: the coefficients that ended at one.
    """

    fit: ProfileFit
    runs: tuple[OwnRun, ...]
    after_seconds: tuple[float, ...]
    bounds: Mapping[str, tuple[float, float]]
    at_bounds: tuple[str, ...]

    def to_document(self) -> dict[str, Any]:
        """The calibration as JSON values."""
        return {
            **self.fit.to_document(),
            "bounds": {name: list(bounds) for name, bounds in self.bounds.items()},
            "at_ends": list(self.at_bounds),
            "rows": [
                {
                    "name": run.name,
                    "measured_seconds": run.measured_seconds,
                    "measured_mfu": run.measured_mfu,
                    "before_seconds": run.step_seconds,
                    "after_seconds": after,
                }
                for run, after in zip(self.runs, self.after_seconds, strict=True)
            ],
        }


def tune_profile(runs: Sequence[OwnRun]) -> OwnCalibration:
    """The one profile of the runs, tuned to them.

    Raises:
        InputError: fewer than MIN_RUNS different runs, of several profiles, one faster than the
            hardware, one absurdly far from its prediction, or none that the numbers explain.
    """
    _refuse_too_few(runs)
    _refuse_other_profiles(runs)
    for run in runs:
        _refuse_faster_than_peak(run)
    fit = fit_profile(runs, reach_scales=REACH_SCALES)
    # the files stand for the runs: their names are not sources that anybody could look up
    fit = replace(fit, sources=dict(Counter(run.path for run in runs)))
    _refuse_no_gain(fit, runs[0].path)
    prior = coefficients_of(fit.software)
    reach = {c.name: reachable(c, prior[c.name], REACH_SCALES) for c in COEFFICIENTS}
    tuned = fit.tuned
    return OwnCalibration(
        fit=fit,
        runs=tuple(runs),
        after_seconds=tuple(step_seconds(run, tuned) for run in runs),
        bounds={name: (reach[name].lowest, reach[name].highest) for name in fit.determined},
        at_bounds=tuple(
            name
            for name in fit.determined
            if _is_at_bound(reach[name], fit.coefficients[name], prior[name])
        ),
    )


def _is_at_bound(reach: Coefficient, value: float, prior: float) -> bool:
    slack = AT_BOUND_SCALES * reach.scale
    return abs(value - prior) > slack and (
        value <= reach.lowest + slack or value >= reach.highest - slack
    )


# ---------------------------------------------------------------- refusals


def _refuse_too_few(runs: Sequence[OwnRun]) -> None:
    different = {(run.scenario.model_dump_json(exclude={"search"}), run.layout) for run in runs}
    if len(different) < MIN_RUNS:
        raise InputError(
            f"{len(different)} run of its own kind; one run cannot tell what is slow from how slow"
            if runs
            else "no runs",
            path=runs[0].path if runs else None,
            value=len(different),
            allowed=f"at least {MIN_RUNS} runs that differ in layout, size or batch",
        )


def _refuse_other_profiles(runs: Sequence[OwnRun]) -> None:
    first = runs[0]
    for run in runs[1:]:
        if run.scenario.software != first.scenario.software:
            raise InputError(
                f"row '{run.name}' ran on software {run.scenario.software.name}, "
                f"row '{first.name}' on {first.scenario.software.name}",
                path=run.path,
                line=run.line,
                key="scenario",
                value=run.scenario.software.name,
                allowed="runs of one software profile",
            )


def _refuse_faster_than_peak(run: OwnRun) -> None:
    mfu = run.measured_mfu
    if mfu > 1:
        accelerator = run.scenario.topology.accelerator.name
        raise InputError(
            f"row '{run.name}' has an MFU of {mfu:.0%} at {run.measured_seconds:g} s a step, more "
            f"than the dense peak of {run.scenario.num_accelerators} × {accelerator}",
            path=run.path,
            line=run.line,
            key="step_seconds",
            value=run.measured_seconds,
            allowed="the seconds of a whole step, all micro-batches; its batch, sequence and "
            "accelerators as the scenario has them (--set in `set:`)",
        )


def _refuse_no_gain(fit: ProfileFit, path: str) -> None:
    before, after = fit.before.mape_fraction or 0.0, fit.after.mape_fraction or 0.0
    if before - after < max(MIN_GAIN_FRACTION * before, MIN_GAIN):
        raise InputError(
            f"no number of {fit.software.name} explains these runs better than its own: mean "
            f"error {before:.1%} before, {after:.1%} after; nothing is written",
            path=path,
            allowed="runs that differ from their prediction alike; see `planner explain SCENARIO "
            "--layout ... --measured step_seconds=...` for what one waits for",
        )
