"""Prediction intervals calibrated on published runs: `planner calibrate errors`.

    calibration = fit_intervals(runs, Selection(min_mfu=0.15))
    calibration.table                          # PredictionErrors, of planner.cost

The ends of an interval are quantiles of ln(measured / predicted), (1 - COVERAGE) / 2 on each side,
over the fitted half of the rows. The ends of a kind are shrunk to those of all rows,

    end = (n end_of_kind + SHRINK_ROWS end_of_all) / (n + SHRINK_ROWS),   n >= MIN_ROWS, else all

Rows of one source share their errors: intervals from fewer than MANY_SOURCES sources are widened as
Student's t widens a prediction from so few (t over the normal quantile, times sqrt(1 + 1/sources)).

Hardly any published row ran on software or accelerators that were never fitted to runs. These two
kinds are judged by taking knowledge away from all rows, see UNSEEN. There every profile, or
accelerator type, counts once, however many rows it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cost import step
from planner.cost.context import CostContext
from planner.cost.prediction_intervals import KINDS, MeasuredInterval, PredictionErrors, is_known
from planner.errors import InputError
from planner.evidence.fitted_files import intervals_yaml
from planner.evidence.maintenance.profiles import by_profile, coefficients_of_others
from planner.evidence.profile_fit import step_seconds, with_coefficients
from planner.evidence.published_runs import PublishedRun
from planner.evidence.row_predictions import (
    Half,
    Prediction,
    Selection,
    in_half,
    is_timed,
    predict_rows,
)
from planner.evidence.validate_runs import IntervalCoverage, coverage
from planner.inputs.files import names
from planner.inputs.quantities import Figure
from planner.inputs.values import load
from planner.problem.hardware import Accelerator

Floats = NDArray[np.float64]

ErrorOf = Callable[[Prediction], float | None]
"""A row → predicted / measured − 1 of a quantity; null where it was not measured."""

COVERAGE = 0.8
"""The fraction of measurements that an interval is made to contain."""

HALVES: tuple[Half, ...] = ("fit", "test")

MIN_ROWS = 30
"""Kinds of fewer rows have no ends of their own: fewer than three rows lie beyond either end."""

SHRINK_ROWS = 30.0
MANY_SOURCES = 5

# written out: a table of four numbers is no reason to depend on scipy
STUDENT = {1: 3.078, 2: 1.886, 3: 1.638}
NORMAL = 1.2816
"""90 % quantiles of Student's t by degrees of freedom (sources less one), and of the normal."""


@dataclass(frozen=True, slots=True)
class IntervalCalibration:
    """The intervals, and the coverage of the fitted and of the held-out half.

    halves: fit or test → coverage.
    """

    table: PredictionErrors
    halves: Mapping[Half, IntervalCoverage]

    def to_document(self) -> dict[str, Any]:
        """The calibration as JSON values."""
        halves = {
            half: {
                quantity: {kind: asdict(covered) for kind, covered in kinds.items()}
                for quantity, kinds in quantities.items()
            }
            for half, quantities in self.halves.items()
        }
        return {**self.table.model_dump(mode="json"), "inside": halves}

    def to_yaml(self) -> str:
        """The intervals as a file that `planner.cost.prediction_intervals` reads."""
        return intervals_yaml(self.table)


def fit_intervals(runs: Iterable[PublishedRun], selection: Selection) -> IntervalCalibration:
    """Intervals of the fitted half of the rows, with the coverage of both halves.

    Raises:
        InputError: the fitted half holds no timed row.
    """
    predictions, _ = predict_rows(replace(selection, half="all").rows(runs))
    rows_of = {half: [row for row in predictions if in_half(row.run, half)] for half in HALVES}
    timed_of = {
        half: [row for row in rows if is_timed(row, selection.min_mfu)]
        for half, rows in rows_of.items()
    }
    if not timed_of["fit"]:
        raise InputError(
            "no timed row of the fitted half can be predicted",
            allowed="rows such as those of scenarios/published/measured_runs.jsonl; see "
            "--quality and --min-mfu",
        )
    seen = [row for row in timed_of["fit"] if row.interval_kind not in UNSEEN]
    peaks = [row for row in rows_of["fit"] if row.memory_error is not None]
    table = PredictionErrors(
        coverage=Figure(COVERAGE, "chosen", "assumed"),
        step_seconds=intervals_by_kind(
            seen + rows_as_unseen(timed_of["fit"]), lambda row: row.time_error
        ),
        peak_bytes=intervals_by_kind(peaks, lambda row: row.memory_error),
    )
    halves = {half: _coverage_of(timed_of[half], rows_of[half], table) for half in HALVES}
    return IntervalCalibration(table, halves)


def _coverage_of(
    timed: Sequence[Prediction], rows: Sequence[Prediction], table: PredictionErrors
) -> IntervalCoverage:
    """Coverage by kind; that of the unseen kinds is of all rows, as if unseen."""
    covered = coverage(timed, rows, table)
    unseen = coverage(rows_as_unseen(timed), [], table)["step_seconds"]
    covered["step_seconds"] |= {kind: unseen[kind] for kind in UNSEEN if kind in unseen}
    return covered


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
    accelerator = scenario.topology.accelerator
    clock = median(
        fraction for name, fraction in _fitted_clocks().items() if name != accelerator.name
    )
    stranger = accelerator.replace(
        sustained_fraction=Figure(clock, "other accelerators", "assumed")
    )
    topology = scenario.topology.model_copy(update={"accelerator": stranger})
    ctx = CostContext.of(scenario.model_copy(update={"topology": topology}))
    return float(step.evaluate(ctx, row.layout, row.splits).total)


@cache
def _fitted_clocks() -> dict[str, float]:
    """Accelerator type → the fraction of its peak clock under load, where that was fitted."""
    shipped = [load(name, "accelerator", Accelerator) for name in names("accelerator")]
    return {a.name: float(a.sustained_fraction) for a in shipped if is_known(a)}


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


def rows_as_unseen(timed: Sequence[Prediction]) -> list[Prediction]:
    """All rows once for each unseen kind, predicted as of that kind."""
    return [
        replace(row, interval_kind=kind)
        for kind, unseen in UNSEEN.items()
        for row in unseen.predict(timed)
    ]


# ---------------------------------------------------------------- ends


def intervals_by_kind(rows: Sequence[Prediction], error_of: ErrorOf) -> dict[str, MeasuredInterval]:
    """The interval of every kind. Rows of unseen kinds count only in their own."""
    seen = [row for row in rows if row.interval_kind not in UNSEEN]
    of_all = seen or list(rows)
    table = {}
    for kind in KINDS:
        members = [row for row in rows if row.interval_kind == kind]
        if len(members) >= MIN_ROWS and _num_sources(members) > 1:
            table[kind] = _interval(members, of_all, error_of)
        elif of_all:
            table[kind] = _interval_of_all(of_all, error_of)
        else:
            table[kind] = _unknown_interval()
    return table


def _interval(
    rows: Sequence[Prediction], of_all: Sequence[Prediction], error_of: ErrorOf
) -> MeasuredInterval:
    """The interval of a kind with enough rows, shrunk to that of all unless it is unseen."""
    low, high = _log_ends(rows, error_of)
    if rows[0].interval_kind not in UNSEEN:
        share = len(rows) / (len(rows) + SHRINK_ROWS)
        low_of_all, high_of_all = _log_ends(of_all, error_of)
        low = share * low + (1 - share) * low_of_all
        high = share * high + (1 - share) * high_of_all
    return _as_interval(low, high, rows, "")


def _interval_of_all(rows: Sequence[Prediction], error_of: ErrorOf) -> MeasuredInterval:
    low, high = _log_ends(rows, error_of)
    return _as_interval(low, high, rows, "; those of all kinds, as this one has too few")


def _as_interval(
    low: float, high: float, rows: Sequence[Prediction], remark: str
) -> MeasuredInterval:
    """Ends given as logarithms, with what they rest on."""
    sources = _num_sources(rows)
    text = (
        f"quantiles of measured / predicted over {len(rows)} rows of {sources} sources, fitting "
        f"half of scenarios/published{remark}"
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


def _log_ends(rows: Sequence[Prediction], error_of: ErrorOf) -> tuple[float, float]:
    """Both quantiles of ln(measured / predicted), widened for few sources."""
    signed = np.array([error_of(row) for row in rows], dtype=float)
    outside = (1 - COVERAGE) / 2
    low, high = weighted_quantiles(-np.log1p(signed), _weights(rows), (outside, 1 - outside))
    wider = widening(_num_sources(rows))
    return wider * low, wider * high


def _weights(rows: Sequence[Prediction]) -> Floats:
    """1 each; of unseen kinds, 1 / rows of the row's group. Shape (rows,)."""
    groups = [
        UNSEEN[row.interval_kind].group_of(row) if row.interval_kind in UNSEEN else None
        for row in rows
    ]
    rows_of = Counter(groups)
    return np.array([1.0 if group is None else 1.0 / rows_of[group] for group in groups])


def weighted_quantiles(
    values: Floats, weights: Floats, shares: tuple[float, float]
) -> tuple[float, float]:
    """Quantiles of weighted values, each of shape (values,).

    A value stands at the middle of its weight on the way from 0 to 1, with straight lines between
    values; with equal weights these are Hazen's quantiles.
    """
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    middle = (np.cumsum(weights) - weights / 2) / np.sum(weights)
    low, high = np.interp(shares, middle, values)
    return float(low), float(high)


def widening(num_sources: int) -> float:
    """How much wider an interval from so few sources is than one from many."""
    if num_sources >= MANY_SOURCES:
        return 1.0
    return float(STUDENT[max(1, num_sources - 1)] / NORMAL * np.sqrt(1 + 1 / num_sources))
