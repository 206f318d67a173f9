"""Prediction intervals calibrated on published runs: `planner calibrate errors`.

    calibration = fit_intervals(runs, Selection(min_mfu=0.15))
    calibration.table                          # PredictionErrors, of planner.cost

The ends of an interval are quantiles of ln(measured / predicted), (1 - COVERAGE) / 2 on each side,
over rows as `left_out` predicts them: dense models without their source, models with experts
without their family. Predictions stand at the end of what clusters differ by. A source counts as
the square root of its rows. The ends of a kind are shrunk to those of all rows,

    end = (n end_of_kind + SHRINK_ROWS end_of_all) / (n + SHRINK_ROWS),   n >= MIN_ROWS, else all

Rows of one source share their errors: intervals from fewer than MANY_SOURCES sources are widened as
Student's t widens a prediction from so few (t over the normal quantile, times sqrt(1 + 1/sources)).

Hardly any published row ran on software or accelerators that were never fitted to runs. These two
kinds are judged by taking knowledge away from all rows, see UNSEEN. There every profile, or
accelerator type, counts once, however many rows it has. Rows of which their fold takes a feature
away (planner.cost.features) say how far unseen features lie, each family of models counted once;
their interval is not widened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from planner.cost import step
from planner.cost.context import CostContext
from planner.cost.prediction_intervals import KINDS, MeasuredInterval, PredictionErrors, is_known
from planner.errors import InputError
from planner.evidence.fitted_files import intervals_yaml
from planner.evidence.maintenance.left_out import (
    FOLDS,
    FoldOf,
    fits_without,
    left_out,
    measured_features,
    source_of,
)
from planner.evidence.maintenance.profiles import by_profile, coefficients_of_others
from planner.evidence.metrics import Coverage
from planner.evidence.profile_fit import step_seconds, with_coefficients
from planner.evidence.published_runs import PublishedRun
from planner.evidence.row_models import family_of
from planner.evidence.row_predictions import Prediction, Selection, is_timed, predict_rows
from planner.evidence.validate_runs import IntervalCoverage, coverage
from planner.inputs.files import names
from planner.inputs.quantities import Figure
from planner.inputs.values import load
from planner.problem.hardware import Accelerator
from planner.problem.precision import Precision

Floats = NDArray[np.float64]

COVERAGE = 0.8
"""The fraction of measurements that an interval is made to contain."""

MIN_ROWS = 30
"""Kinds of fewer rows have no ends of their own: fewer than three rows lie beyond either end."""

MIN_SOURCES = 3
"""Nor have kinds of fewer sources, unless they stand apart: they would be widened beyond use."""

SHRINK_ROWS = 30.0
MANY_SOURCES = 5


@dataclass(frozen=True, slots=True)
class IntervalCalibration:
    """The intervals, and how many rows of whatever was left out lie inside them.

    left_out: coverage by kind. by_source: source → coverage of its steps.
    judged: as left_out, each source judged by intervals made without it.
    """

    table: PredictionErrors
    left_out: IntervalCoverage
    by_source: Mapping[str, Coverage]
    judged: Coverage

    def to_document(self) -> dict[str, Any]:
        """The calibration as JSON values."""
        return {
            **self.table.model_dump(mode="json"),
            "inside": {
                quantity: {kind: asdict(covered) for kind, covered in kinds.items()}
                for quantity, kinds in self.left_out.items()
            },
            "inside_by_source": {s: asdict(covered) for s, covered in self.by_source.items()},
            "inside_without_own_source": asdict(self.judged),
        }

    def to_yaml(self) -> str:
        """The intervals as a file that `planner.cost.prediction_intervals` reads."""
        return intervals_yaml(self.table)


def fit_intervals(runs: Iterable[PublishedRun], selection: Selection) -> IntervalCalibration:
    """Intervals of the rows as predicted without what they say, with their coverage.

    Raises:
        InputError: there is no timed row.
    """
    predictions = predict_rows(replace(selection, half="all").rows(runs)).rows
    timed = [row for row in predictions if is_timed(row, selection.min_mfu)]
    if not timed:
        raise InputError(
            "no timed row can be predicted",
            allowed="rows such as those of scenarios/published/measured_runs.jsonl; see "
            "--quality and --min-mfu",
        )
    rows = rows_without_their_fold(timed) + rows_as_unseen(timed)
    peaks = [row for row in predictions if row.memory_error is not None]
    table = _table(rows, peaks, measured_features(timed))
    seen = [row for row in rows if row.interval_kind not in UNSEEN]
    sources = sorted({row.source for row in seen})
    judged = [
        inside
        for source in sources
        for inside in _judged([r for r in rows if r.source != source], seen, source)
    ]
    return IntervalCalibration(
        table,
        coverage(rows, peaks, table),
        {
            source: coverage([row for row in seen if row.source == source], [], table)[
                "step_seconds"
            ]["all"]
            for source in sources
        },
        Coverage.of(judged),
    )


def _table(
    rows: Sequence[Prediction],
    peaks: Sequence[Prediction],
    features: Mapping[str, tuple[str, ...]],
) -> PredictionErrors:
    return PredictionErrors(
        coverage=Figure(COVERAGE, "chosen", "assumed"),
        features=dict(features),
        step_seconds=intervals_by_kind(rows, step_ratios),
        peak_bytes=intervals_by_kind(peaks, peak_ratios),
    )


def _judged(
    others: Sequence[Prediction], seen: Sequence[Prediction], source: str
) -> list[tuple[float, float, float]]:
    """Measured / predicted of a source's rows, with the ends that other sources' rows give."""
    table = intervals_by_kind(others, step_ratios)
    judged = []
    for row in seen:
        if row.source == source:
            low, high = row.cluster_factors
            interval = table[row.interval_kind]
            ends = (low * float(interval.low), high * float(interval.high))
            judged.append((1 / (1 + (row.time_error or 0.0)), *ends))
    return judged


def rows_without_their_fold(timed: Sequence[Prediction]) -> list[Prediction]:
    """Every row predicted without its source (dense) or its family of models (with experts).

    Rows whose clock or software no other fold has are left to UNSEEN, where each counts once.
    """
    rows: list[Prediction] = []
    for by in ("source", "family"):
        fold_of = FOLDS[by]
        members = [row for row in timed if (row.scenario.model.moe is not None) == (by == "family")]
        rows += left_out(members, fits_without(timed, fold_of), fold_of)
    return [row for row in rows if row.interval_kind not in UNSEEN]


# ---------------------------------------------------------------- kinds with hardly any row


@dataclass(frozen=True, slots=True)
class UnseenKind:
    """An interval kind of jobs of which something was never fitted to runs.

    predict: the rows, predicted without that knowledge.
    group_of: what a row shares with others that lack the same knowledge; each group counts once.
    """

    predict: Callable[[Sequence[Prediction]], list[Prediction]]
    group_of: Callable[[Prediction], str]


def without_own_clock(timed: Sequence[Prediction]) -> list[Prediction]:
    """The rows predicted with the median of the clocks that other accelerators keep under load."""
    return [replace(row, step_seconds=_seconds_at_other_clock(row)) for row in timed]


def _seconds_at_other_clock(row: Prediction) -> float:
    scenario = row.scenario
    accelerator, precision = scenario.topology.accelerator, scenario.training.peak_key
    clock = median(
        clocks[precision]
        for name, clocks in _fitted_clocks().items()
        if name != accelerator.name and precision in clocks
    )
    stranger = accelerator.replace(
        sustained_fraction={
            **accelerator.sustained_fraction,
            precision: Figure(clock, "other accelerators", "assumed"),
        }
    )
    topology = scenario.topology.model_copy(update={"accelerator": stranger})
    ctx = CostContext.of(scenario.model_copy(update={"topology": topology}))
    return float(step.evaluate(ctx, row.layout, row.splits).total)


@cache
def _fitted_clocks() -> dict[str, dict[Precision, float]]:
    """Accelerator type → precision → the fraction of its peak clock under load, where fitted."""
    shipped = [load(name, "accelerator", Accelerator) for name in names("accelerator")]
    return {
        accelerator.name: {
            precision: float(clock)
            for precision, clock in accelerator.sustained_fraction.items()
            if is_known(accelerator, precision)
        }
        for accelerator in shipped
    }


def without_own_coefficients(timed: Sequence[Prediction]) -> list[Prediction]:
    """The rows predicted with the medians of the other profiles' numbers, by profile."""
    predictions = []
    for rows in by_profile(timed).values():
        software = rows[0].scenario.software
        stranger = with_coefficients(software, coefficients_of_others(software), "other profiles")
        predictions += [replace(row, step_seconds=step_seconds(row, stranger)) for row in rows]
    return predictions


NEW_ACCELERATOR, NEW_SOFTWARE = KINDS[:2]

UNSEEN: Mapping[str, UnseenKind] = {
    NEW_ACCELERATOR: UnseenKind(
        without_own_clock, lambda row: row.scenario.topology.accelerator.name
    ),
    NEW_SOFTWARE: UnseenKind(without_own_coefficients, lambda row: row.scenario.software.name),
}
"""Kind → how it is judged. A further kind of this sort is a further line."""

UNSEEN_FEATURE = KINDS[2]

APART: Mapping[str, FoldOf] = {
    **{kind: unseen.group_of for kind, unseen in UNSEEN.items()},
    UNSEEN_FEATURE: lambda row: family_of(row.run),
}
"""Kinds whose intervals rest on their own rows alone → what counts once there."""


def rows_as_unseen(timed: Sequence[Prediction]) -> list[Prediction]:
    """All rows once for each unseen kind, predicted as of that kind."""
    return [
        replace(row, interval_kind=kind)
        for kind, unseen in UNSEEN.items()
        for row in unseen.predict(timed)
    ]


# ---------------------------------------------------------------- ends


class Ratios(NamedTuple):
    """Logarithms of measured over predicted, at the low and at the high end of clusters."""

    low: float
    high: float


RatiosOf = Callable[[Prediction], Ratios]


def step_ratios(row: Prediction) -> Ratios:
    """Of the step of a timed row."""
    assert row.time_error is not None
    low, high = row.cluster_factors
    measured = -np.log1p(row.time_error)
    return Ratios(float(measured - np.log(low)), float(measured - np.log(high)))


def peak_ratios(row: Prediction) -> Ratios:
    """Of the peak of a row with one, which no cluster changes."""
    assert row.memory_error is not None
    measured = float(-np.log1p(row.memory_error))
    return Ratios(measured, measured)


def intervals_by_kind(
    rows: Sequence[Prediction], ratios_of: RatiosOf
) -> dict[str, MeasuredInterval]:
    """The interval of every kind. Rows of unseen kinds count only in their own."""
    seen = [row for row in rows if row.interval_kind not in APART]
    of_all = seen or list(rows)
    table = {}
    for kind in KINDS:
        members = [row for row in rows if row.interval_kind == kind]
        enough = kind in APART or _num_sources(members) >= MIN_SOURCES
        if len(members) >= MIN_ROWS and enough:
            table[kind] = _interval(members, of_all, ratios_of)
        elif of_all:
            table[kind] = _interval_of_all(of_all, ratios_of)
        else:
            table[kind] = _unknown_interval()
    return table


def _interval(
    rows: Sequence[Prediction], of_all: Sequence[Prediction], ratios_of: RatiosOf
) -> MeasuredInterval:
    """The interval of a kind with enough rows, shrunk to that of all unless it stands apart."""
    low, high = _log_ends(rows, ratios_of)
    if rows[0].interval_kind not in APART:
        share = len(rows) / (len(rows) + SHRINK_ROWS)
        low_of_all, high_of_all = _log_ends(of_all, ratios_of)
        low = share * low + (1 - share) * low_of_all
        high = share * high + (1 - share) * high_of_all
    return _as_interval(low, high, rows, "")


def _interval_of_all(rows: Sequence[Prediction], ratios_of: RatiosOf) -> MeasuredInterval:
    low, high = _log_ends(rows, ratios_of)
    return _as_interval(low, high, rows, "; those of all kinds, as this one has too few")


def _as_interval(
    low: float, high: float, rows: Sequence[Prediction], remark: str
) -> MeasuredInterval:
    """Ends given as logarithms, with what they rest on."""
    sources = _num_sources(rows)
    text = (
        f"quantiles of measured / predicted over {len(rows)} rows of {sources} sources of "
        f"scenarios/published, each left out{remark}"
    )
    return MeasuredInterval(
        rows=len(rows),
        sources=sources,
        # an interval contains its prediction, though all measurements may lie on one side
        low=Figure(_four_digits(min(1.0, np.exp(low))), text, "fitted"),
        high=Figure(_four_digits(max(1.0, np.exp(high))), text, "fitted"),
    )


def _unknown_interval() -> MeasuredInterval:
    text = "no row: a factor of two either way"
    return MeasuredInterval(
        rows=0, sources=0, low=Figure(0.5, text, "assumed"), high=Figure(2.0, text, "assumed")
    )


def _four_digits(value: float) -> float:
    return float(f"{value:.4g}")


def _num_sources(rows: Sequence[Prediction]) -> int:
    return len({row.source for row in rows})


def _log_ends(rows: Sequence[Prediction], ratios_of: RatiosOf) -> tuple[float, float]:
    """Both quantiles of ln(measured / predicted), widened for few sources."""
    ratios = np.array([ratios_of(row) for row in rows], dtype=float)
    outside, weights = (1 - COVERAGE) / 2, _weights(rows)
    low = weighted_quantile(ratios[:, 0], weights, outside)
    high = weighted_quantile(ratios[:, 1], weights, 1 - outside)
    # two families, each counted once, put the end into the tail of the one that is worse
    wider = 1.0 if rows[0].interval_kind == UNSEEN_FEATURE else widening(_num_groups(rows))
    return wider * low, wider * high


def _group_of(row: Prediction) -> str:
    """What the row shares its errors with: a source; of kinds that stand apart, see APART."""
    group_of = APART.get(row.interval_kind, source_of)
    return group_of(row)


def _num_groups(rows: Sequence[Prediction]) -> int:
    return len({_group_of(row) for row in rows})


def _weights(rows: Sequence[Prediction]) -> Floats:
    """1 over the root of the group's rows; of kinds that stand apart, 1 over them.

    Shape (rows,).
    """
    rows_of = Counter(_group_of(row) for row in rows)
    return np.array(
        [rows_of[_group_of(row)] ** (-1.0 if row.interval_kind in APART else -0.5) for row in rows]
    )


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """A quantile of weighted values, each of shape (values,).

    A value stands at the middle of its weight on the way from 0 to 1, with straight lines between
    values; with equal weights these are Hazen's quantiles.
    """
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    middle = (np.cumsum(weights) - weights / 2) / np.sum(weights)
    return float(np.interp(share, middle, values))


def widening(num_sources: int) -> float:
    """How much wider an interval from so few sources is than one from many."""
    if num_sources >= MANY_SOURCES:
        return 1.0
    end = 1 - (1 - COVERAGE) / 2
    wider = t.ppf(end, max(1, num_sources - 1)) / norm.ppf(end)
    return float(wider * np.sqrt(1 + 1 / num_sources))
