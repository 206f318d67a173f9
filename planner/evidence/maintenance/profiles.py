"""Shipped software profiles fitted to published runs: `planner calibrate runs`, without FILE.

    calibration = fit_profiles(runs, Selection(min_mfu=0.15, half="fit"))
    calibration.profiles["megatron-core"].moved

The fit itself is `profile_fit`, as for users' own runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from planner.cost.prediction_intervals import is_fitted
from planner.errors import InputError
from planner.evidence.profile_fit import (
    COEFFICIENTS,
    MIN_PUBLISHED_ROWS,
    ProfileFit,
    coefficients_of,
    fit_profile,
)
from planner.evidence.published_runs import PublishedRun
from planner.evidence.row_predictions import Prediction, Selection, is_timed, predict_rows
from planner.inputs.files import names
from planner.inputs.values import load
from planner.problem.software import Software


@dataclass(frozen=True, slots=True)
class RunsCalibration:
    """Every profile that the rows touch, fitted, and why rows did not count.

    too_few: profile → timed rows, fewer than MIN_PUBLISHED_ROWS. skipped: reason → rows.
    """

    profiles: Mapping[str, ProfileFit]
    too_few: Mapping[str, int]
    skipped: Mapping[str, int]

    def to_document(self) -> dict[str, Any]:
        """The calibration as JSON values."""
        return {
            "profiles": {name: fit.to_document() for name, fit in self.profiles.items()},
            "too_few": dict(self.too_few),
            "rows_skipped": dict(sorted(self.skipped.items())),
        }


def fit_profiles(
    runs: Iterable[PublishedRun], selection: Selection, *, afresh: bool = False
) -> RunsCalibration:
    """Fit the profiles that the timed rows of a selection touch.

    afresh: the prior is what the other shipped profiles have, not the profile's own numbers.

    Raises:
        InputError: no profile has MIN_PUBLISHED_ROWS timed rows, or a row is so far off that
            something else is wrong.
    """
    predictions, skipped = predict_rows(selection.rows(runs))
    profiles, too_few = {}, {}
    timed = [row for row in predictions if is_timed(row, selection.min_mfu)]
    for name, rows in by_profile(timed).items():
        if len(rows) < MIN_PUBLISHED_ROWS:
            too_few[name] = len(rows)
            continue
        prior = coefficients_of_others(rows[0].scenario.software) if afresh else None
        profiles[name] = fit_profile(rows, prior)
    if not profiles:
        raise InputError(
            f"no software profile has {MIN_PUBLISHED_ROWS} timed rows that can be predicted",
            allowed="rows such as those of scenarios/published/measured_runs.jsonl; see --half, "
            "--quality and --min-mfu",
        )
    return RunsCalibration(profiles, too_few, skipped)


def by_profile(rows: Iterable[Prediction]) -> dict[str, list[Prediction]]:
    """The rows by the name of their software profile."""
    rows_of: dict[str, list[Prediction]] = defaultdict(list)
    for row in rows:
        rows_of[row.scenario.software.name].append(row)
    return dict(sorted(rows_of.items()))


def coefficients_of_others(software: Software) -> dict[str, float]:
    """Medians of the numbers of the other shipped profiles: what is known of an unknown framework.

    Not counted are profiles of the same framework, and profiles that copy the numbers of their kin,
    which would count those twice.
    """
    shipped = (load(name, "software", Software) for name in names("software"))
    others = [
        coefficients_of(profile)
        for profile in shipped
        if profile.family != software.family and (profile.kin is None or is_fitted(profile))
    ]
    return {c.name: float(median(values[c.name] for values in others)) for c in COEFFICIENTS}
