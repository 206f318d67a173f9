"""Shipped software profiles fitted to published runs: `planner calibrate runs`, without FILE.

    calibration = fit_profiles(runs, Selection(min_mfu=0.15, half="fit"))
    calibration.profiles["megatron-core"].moved

All at once (`joint_fit`): software, accelerators and clusters share the rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from planner.cost.prediction_intervals import is_fitted
from planner.errors import InputError
from planner.evidence.fitted_files import coefficients_yaml
from planner.evidence.maintenance.joint_fit import (
    ClusterRange,
    Number,
    Numbers,
    cluster_ranges,
    errors_at,
    fit_jointly,
    moves,
    rounded,
    shipped_numbers,
)
from planner.evidence.metrics import TimeErrors
from planner.evidence.profile_fit import (
    COEFFICIENTS,
    MIN_PUBLISHED_ROWS,
    ProfileFit,
    coefficients_of,
    refuse_absurd,
)
from planner.evidence.published_runs import PublishedRun
from planner.evidence.row_predictions import Prediction, Selection, is_timed, predict_rows
from planner.inputs.files import names, resolve
from planner.inputs.quantities import Figure
from planner.inputs.values import load
from planner.problem.software import FALLBACK, Software


@dataclass(frozen=True, slots=True)
class RunsCalibration:
    """Everything that published runs say, fitted at once, and why rows did not count.

    profiles: those with MIN_PUBLISHED_ROWS timed rows. clocks: accelerator type (others may share
    its clock) → precision → fraction of the peak. overheads: of the usual cluster, with the range
    of the rows' clusters. too_few: profile → timed rows. skipped: reason → rows.
    """

    profiles: Mapping[str, ProfileFit]
    clocks: Mapping[str, Mapping[str, float]]
    overheads: Mapping[str, ClusterRange]
    too_few: Mapping[str, int]
    skipped: Mapping[str, int]

    def to_document(self) -> dict[str, Any]:
        """The calibration as JSON values."""
        return {
            "profiles": {name: fit.to_document() for name, fit in self.profiles.items()},
            "clocks": {name: dict(clocks) for name, clocks in self.clocks.items()},
            "overheads": {name: asdict(found) for name, found in self.overheads.items()},
            "too_few": dict(self.too_few),
            "rows_skipped": dict(sorted(self.skipped.items())),
        }


def fit_profiles(
    runs: Iterable[PublishedRun], selection: Selection, *, afresh: bool = False
) -> RunsCalibration:
    """Fit the profiles, clocks and cluster that the timed rows of a selection touch.

    afresh: the prior is what the other shipped profiles have, not the profile's own numbers.

    Raises:
        InputError: no profile has MIN_PUBLISHED_ROWS timed rows, or a row is so far off that
            something else is wrong.
    """
    predicted = predict_rows(selection.rows(runs))
    skipped = Counter(predicted.skipped)
    if predicted.assumed_software:
        skipped["framework without a software profile"] = len(predicted.assumed_software)
    timed = [row for row in predicted.rows if is_timed(row, selection.min_mfu)]
    refuse_absurd(timed)
    profiles = by_profile(timed)
    fitted = {name: rows for name, rows in profiles.items() if len(rows) >= MIN_PUBLISHED_ROWS}
    if not fitted:
        raise InputError(
            f"no software profile has {MIN_PUBLISHED_ROWS} timed rows that can be predicted",
            allowed="rows such as those of scenarios/published/measured_runs.jsonl; see --half, "
            "--quality and --min-mfu",
        )
    rows = [row for members in fitted.values() for row in members]
    start = shipped_numbers(rows)
    numbers = fit_jointly(rows, start, _priors(fitted, start, afresh=afresh))
    clocks: dict[str, dict[str, float]] = defaultdict(dict)
    for number, value in sorted(numbers.items()):
        if number.holder == "clock":
            clocks[number.owner][number.name] = rounded(value)
    return RunsCalibration(
        profiles={name: profile_of(members, numbers) for name, members in fitted.items()},
        clocks=clocks,
        overheads=cluster_ranges(rows, numbers),
        too_few={n: len(rows) for n, rows in profiles.items() if n not in fitted},
        skipped=skipped,
    )


def _priors(
    fitted: Mapping[str, Sequence[Prediction]], start: Numbers, *, afresh: bool
) -> dict[Number, float]:
    """What pulls at each number: where it is; afresh, the other profiles' numbers for software."""
    medians = {
        name: coefficients_of_others(rows[0].scenario.software) if afresh else {}
        for name, rows in fitted.items()
    }
    return {
        number: medians[number.owner].get(number.name, value)
        if number.holder == "software"
        else value
        for number, value in start.items()
    }


def profile_of(rows: Sequence[Prediction], numbers: Numbers) -> ProfileFit:
    """The fit of the one profile of the rows, as part of a joint fit."""
    software = rows[0].scenario.software
    values = {
        number.name: rounded(value)
        for number, value in numbers.items()
        if number.holder == "software" and number.owner == software.name
    }
    before, after = errors_at(rows, {}), errors_at(rows, numbers)
    return ProfileFit(
        software=software,
        coefficients=values,
        determined=tuple(c.name for c in COEFFICIENTS if moves(rows, numbers, c.name)),
        sources=dict(sorted(Counter(row.source for row in rows).items())),
        before=TimeErrors.of(np.expm1(before).tolist()),
        after=TimeErrors.of(np.expm1(after).tolist()),
    )


def by_profile(rows: Iterable[Prediction]) -> dict[str, list[Prediction]]:
    """The rows by the name of their software profile."""
    rows_of: dict[str, list[Prediction]] = defaultdict(list)
    for row in rows:
        rows_of[row.scenario.software.name].append(row)
    return dict(sorted(rows_of.items()))


def coefficients_of_others(software: Software) -> dict[str, float]:
    """Medians of the numbers of the other shipped profiles: what is known of an unknown framework.

    Not counted are profiles of the same framework, profiles that copy the numbers of their kin,
    which would count those twice, and the fallback, which is made of such medians.
    """
    others = [coefficients_of(profile) for profile in _others(software)]
    return {c.name: float(median(values[c.name] for values in others)) for c in COEFFICIENTS}


def _others(software: Software) -> list[Software]:
    shipped = (load(name, "software", Software) for name in names("software") if name != FALLBACK)
    return [
        profile
        for profile in shipped
        if profile.family != software.family and (profile.kin is None or is_fitted(profile))
    ]


# ---------------------------------------------------------------- frameworks without a profile


def fallback_yaml() -> str:
    """The file of the fallback profile with the medians of the other profiles' coefficients."""
    profile = load(FALLBACK, "software", Software)
    others = [other.coefficients for other in _others(profile)]
    source = f"assumed: median of {len(others)} other profiles"
    medians: dict[str, Any] = {
        name: Figure(median(float(getattr(other, name)) for other in others), source, "assumed")
        for name in type(profile.coefficients).model_fields
    }
    return coefficients_yaml(profile.replace(coefficients=profile.coefficients.replace(**medians)))


def write_fallback() -> None:
    """Write the fallback profile that ships anew, after other profiles changed."""
    resolve("software", FALLBACK).write_text(fallback_yaml(), "utf-8")
