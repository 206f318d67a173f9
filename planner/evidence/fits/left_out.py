"""Every source predicted as if it had never been seen: `planner validate runs --leave-one-out`.

A source is predicted with software coefficients fitted to the fitting half of the other sources'
rows, afresh (`evidence.fits.software`). A profile that no other source ran on takes the medians of
 the other profiles' numbers. Kernel, clock and fabric figures stay as shipped: they come from
operator measurements, but for the sustained clock and some attention rates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.evidence.fits.software import (
    LEAST_ROWS,
    Values,
    by_profile,
    fit_profile,
    step_seconds,
    values_of_others,
    with_coefficients,
)
from planner.evidence.published_runs import PublishedRun
from planner.evidence.validate_runs import (
    Half,
    Models,
    Prediction,
    Validation,
    check,
    chosen,
    in_half,
    is_timed,
    predict_runs,
    summarise,
)
from planner.problem.software import Software


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The numbers a source was predicted with, and how many rows of others they were fitted to."""

    rows_fitted: int
    coefficients: Values


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """Errors of predictions by coefficients that never saw the row's source."""

    validation: Validation
    left_out: Mapping[str, Mapping[str, LeftOut]]  # source -> profile

    def to_document(self) -> dict[str, Any]:
        """As of `Validation`, and what each source was predicted with."""
        sources = {
            source: {
                profile: {"rows_fitted": left.rows_fitted, "coefficients": dict(left.coefficients)}
                for profile, left in profiles.items()
            }
            for source, profiles in self.left_out.items()
        }
        return {**self.validation.to_document(), "leave_one_out": sources}


def validate_left_out(
    runs: Iterable[PublishedRun],
    *,
    quality: str = "AB",
    min_mfu: float = 0.0,
    half: Half = "all",
    models: Models = "all",
) -> LeaveOneOut:
    """Predict every source without its rows, and summarise the errors of the chosen ones.

    Raises:
        InputError: an option is none of its values.
    """
    check(quality, min_mfu, half, models)
    rows = list(runs)
    every, _ = predict_runs(chosen(rows, quality, "all", models))
    left = coefficients_without([p for p in every if is_timed(p, min_mfu)])
    predictions, skipped = predict_runs(chosen(rows, quality, half, models))
    shown = [replace(p, step_seconds=step_seconds(p, _software(p, left))) for p in predictions]
    return LeaveOneOut(summarise(shown, skipped, min_mfu), left)


def coefficients_without(timed: Sequence[Prediction]) -> dict[str, dict[str, LeftOut]]:
    """For each source and profile of the rows: numbers fitted to the other sources' rows."""
    found: dict[str, dict[str, LeftOut]] = {}
    for name, rows in by_profile(timed).items():
        software = rows[0].job.scenario.software
        prior = values_of_others(software)
        # profiles of one framework, run in different ways, share their numbers
        kin = (row for row in timed if row.job.scenario.software.family == software.family)
        known = [row for row in kin if in_half(row.run, "fit")]
        fits: dict[tuple[str, ...], Values] = {}  # a source without rows here changes no fit
        for source in sorted({row.run.publication for row in rows}):
            others = [row for row in known if row.run.publication != source]
            if len(others) < LEAST_ROWS:
                found.setdefault(source, {})[name] = LeftOut(0, prior)
                continue
            key = tuple(sorted({row.run.publication for row in others}))
            if key not in fits:
                fits[key] = fit_profile(others, prior).coefficients
            found.setdefault(source, {})[name] = LeftOut(len(others), fits[key])
    return found


def _software(row: Prediction, left: Mapping[str, Mapping[str, LeftOut]]) -> Software:
    software = row.job.scenario.software
    own = left.get(row.run.publication, {}).get(software.name)
    if own is None:  # a source without a timed row had no part in any fit
        return software
    return with_coefficients(software, own.coefficients, "fitted without this source")
