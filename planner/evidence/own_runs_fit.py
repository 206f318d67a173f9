"""Software numbers tuned to two or three runs of a user's own: `planner calibrate runs FILE`.

    found = calibrate_own(rows)
    found.fitted.moved, found.at_ends

The fit is that of `evidence.fits.software`, from the numbers of the profile that the rows name:
each scale that a number moves costs as much as a row that is one NOISE off, and none moves more
than REACH of its scales. So few rows shift few numbers a little, and none far. Every row counts
whole: they are the stack to be predicted, not a sample of many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from planner.cost import flops
from planner.cost.context import CostContext
from planner.cost.traffic import Splits
from planner.errors import InputError
from planner.evidence.fits.software import (
    COEFFICIENTS,
    Coefficient,
    Fitted,
    fit_profile,
    own_values,
    reachable,
    step_seconds,
)
from planner.layouts.layout import Layout
from planner.problem.scenario import Scenario

REACH = 2.0
"""Scales that a number may move."""

LEAST_ROWS = 2
LEAST_GAIN, LEAST_STEP = 0.05, 0.001
"""Share of the mean error that a fit must take away, and of the step: less is nothing."""


@dataclass(frozen=True, slots=True)
class OwnRun:
    """A measured run of a user's own, with its prediction. source: its own name, as it stands for
    itself; path and line: where it was given."""

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
        """Rows of one's own are not samples of one source."""
        return self.name

    @property
    def measured_mfu(self) -> float:
        """Model FLOPs of a step over the dense peak in the measured time."""
        ctx = CostContext.of(self.scenario)
        peak = ctx.num_accelerators * ctx.peak_flops
        return float(flops.model_flops(ctx) / (peak * self.measured_seconds))


@dataclass(frozen=True, slots=True)
class OwnCalibration:
    """A profile tuned to rows, each row before and after, and the numbers at an end of their reach.

    after_seconds: predictions of `rows` with the fitted numbers.
    """

    fitted: Fitted
    rows: tuple[OwnRun, ...]
    after_seconds: tuple[float, ...]
    bounds: Mapping[str, tuple[float, float]]
    at_ends: tuple[str, ...]

    def to_document(self) -> dict[str, Any]:
        """The calibration as JSON values."""
        return {
            **self.fitted.to_document(),
            "bounds": {name: list(ends) for name, ends in self.bounds.items()},
            "at_ends": list(self.at_ends),
            "rows": [
                {
                    "name": row.name,
                    "measured_seconds": row.measured_seconds,
                    "measured_mfu": row.measured_mfu,
                    "before_seconds": row.step_seconds,
                    "after_seconds": after,
                }
                for row, after in zip(self.rows, self.after_seconds, strict=True)
            ],
            "before": asdict(self.fitted.before),
            "after": asdict(self.fitted.after),
        }


def calibrate_own(rows: Sequence[OwnRun]) -> OwnCalibration:
    """The rows' one profile, tuned to them.

    Raises:
        InputError: fewer than LEAST_ROWS different runs, of several profiles, one faster than the
            hardware, one absurdly far from its prediction, or none that the numbers explain.
    """
    path = rows[0].path if rows else None
    different = {
        (row.scenario.model_dump_json(exclude={"search"}), row.layout) for row in rows
    }  # fmt: skip
    if len(different) < LEAST_ROWS:
        raise InputError(
            f"{len(different)} run of its own kind; one run cannot tell what is slow from how slow"
            if rows else "no runs",
            path=path, value=len(different),
            allowed=f"at least {LEAST_ROWS} runs that differ in layout, size or batch",
        )  # fmt: skip
    _refuse_other_profiles(rows)
    for row in rows:
        _refuse_faster_than_peak(row)
    fitted = fit_profile(rows, reach_scales=REACH)
    prior = own_values(fitted.software)
    near = {c.name: reachable(c, prior[c.name], REACH) for c in COEFFICIENTS}
    fitted = _named(fitted, rows)
    before, after = fitted.before.mape_fraction or 0.0, fitted.after.mape_fraction or 0.0
    if before - after < max(LEAST_GAIN * before, LEAST_STEP):
        raise InputError(
            f"no number of {fitted.software.name} explains these runs better than its own: mean "
            f"error {before:.1%} before, {after:.1%} after; nothing is written",
            path=path,
            allowed="runs that differ from their prediction alike; see `planner explain SCENARIO "
            "--layout ... --measured step_seconds=...` for what one waits for",
        )  # fmt: skip
    tuned = fitted.tuned
    return OwnCalibration(
        fitted=fitted,
        rows=tuple(rows),
        after_seconds=tuple(step_seconds(row, tuned) for row in rows),
        bounds={name: (near[name].least, near[name].most) for name in fitted.determined},
        at_ends=tuple(
            name for name in fitted.determined
            if _is_at_end(near[name], fitted.coefficients[name], prior[name])
        ),
    )  # fmt: skip


def _named(fitted: Fitted, rows: Sequence[OwnRun]) -> Fitted:
    """The fit with the files for its sources."""
    return replace(fitted, sources=dict(Counter(row.path for row in rows)))


def _is_at_end(near: Coefficient, value: float, prior: float) -> bool:
    slack = 0.01 * near.scale
    return abs(value - prior) > slack and (
        value <= near.least + slack or value >= near.most - slack
    )


def _refuse_other_profiles(rows: Sequence[OwnRun]) -> None:
    first = rows[0]
    for row in rows[1:]:
        if row.scenario.software != first.scenario.software:
            raise InputError(
                f"row '{row.name}' ran on software {row.scenario.software.name}, "
                f"row '{first.name}' on {first.scenario.software.name}",
                path=row.path, line=row.line, key="scenario", value=row.scenario.software.name,
                allowed="runs of one software profile",
            )  # fmt: skip


def _refuse_faster_than_peak(row: OwnRun) -> None:
    mfu = row.measured_mfu
    if mfu > 1:
        part = row.scenario.topology.accelerator.name
        raise InputError(
            f"row '{row.name}' has an MFU of {mfu:.0%} at {row.measured_seconds:g} s a step, more "
            f"than the dense peak of {row.scenario.num_accelerators} × {part}",
            path=row.path, line=row.line, key="step_seconds", value=row.measured_seconds,
            allowed="the seconds of a whole step, all micro-batches; its batch, sequence and "
            "accelerators as the scenario has them (--set in `set:`)",
        )  # fmt: skip
