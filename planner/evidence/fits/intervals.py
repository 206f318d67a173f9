"""Error bars calibrated on measured runs: `planner calibrate errors`.

    calibrate_errors(runs).errors

The ends of a bar are quantiles of ln(measured / predicted), (1 - coverage)/2 on each side, over the
fitting half of the rows. The ends of a kind are shrunk to those of all rows,

    end = (n end_of_kind + SHRINK_ROWS end_of_all) / (n + SHRINK_ROWS),   n >= LEAST_ROWS, else all

Rows of one source share their errors: the bars of fewer than MANY_SOURCES sources are widened as
Student's t widens a prediction from so few (t over the normal quantile, times sqrt(1 + 1/sources)).

Software and parts that were never fitted are judged by taking numbers away: each row is predicted
with the medians of the other profiles' coefficients, or of the other parts' clocks under load. In
these two kinds every profile, or part, counts once, however many rows it has.
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
from planner.evidence.fits.software import (
    by_profile,
    step_seconds,
    values_of_others,
    with_coefficients,
)
from planner.evidence.metrics import Coverage
from planner.evidence.published_runs import PublishedRun
from planner.evidence.validate_runs import (
    Prediction,
    check,
    chosen,
    coverage,
    in_half,
    is_timed,
    predict_runs,
)
from planner.inputs.files import names
from planner.inputs.quantities import Figure
from planner.inputs.values import load
from planner.problem.hardware import Accelerator

Floats = NDArray[np.float64]

COVERAGE = 0.8
LEAST_ROWS = 30
SHRINK_ROWS = 30.0
MANY_SOURCES = 5
NEW_PART, NEW_SOFTWARE = KINDS[:2]

STUDENT = {1: 3.078, 2: 1.886, 3: 1.638}
NORMAL = 1.2816
"""90 % quantiles of Student's t by degrees of freedom (sources less one), and of the normal."""

HEAD = """\
# Ends of the error bars of predicted step times and peak memory, as measured / predicted.
# Written by `planner calibrate errors`; kinds and their order are KINDS of
# planner/cost/prediction_intervals.py.
"""


@dataclass(frozen=True, slots=True)
class ErrorCalibration:
    """The bars, and how many rows of the fitting and of the testing half lie inside them."""

    errors: PredictionErrors
    halves: Mapping[str, Mapping[str, Mapping[str, Coverage]]]  # half → quantity → kind

    def to_document(self) -> dict[str, Any]:
        """The calibration as JSON values."""
        document = self.errors.model_dump(mode="json")
        halves = {
            half: {
                quantity: {kind: asdict(found) for kind, found in kinds.items()}
                for quantity, kinds in quantities.items()
            }
            for half, quantities in self.halves.items()
        }
        return {**document, "inside": halves}

    def to_yaml(self) -> str:
        """The bars as a file that `planner.cost.prediction_intervals` reads."""
        return errors_yaml(self.errors)


def calibrate_errors(
    runs: Iterable[PublishedRun], *, quality: str = "AB", min_mfu: float = 0.15
) -> ErrorCalibration:
    """Bars of the fitting half of the rows, held against the testing half.

    Raises:
        InputError: an option is none of its values, or the half holds no timed row.
    """
    check(quality, min_mfu)
    predictions, _ = predict_runs(chosen(runs, quality))
    fit = [p for p in predictions if in_half(p.run, "fit")]
    timed = [p for p in fit if is_timed(p, min_mfu)]
    if not timed:
        raise InputError(
            "no timed row of the fitting half can be predicted",
            allowed="rows such as those of scenarios/published/measured_runs.jsonl; see "
            "--quality and --min-mfu",
        )
    peaks = [p for p in fit if p.memory_error is not None]
    errors = PredictionErrors(
        coverage=Figure(COVERAGE, "chosen", "assumed"),
        step_seconds=ends_by_kind(
            [p for p in timed if p.kind not in KINDS[:2]] + as_new(timed), lambda p: p.time_error
        ),
        peak_bytes=ends_by_kind(peaks, lambda p: p.memory_error),
    )
    halves = {}
    for half in ("fit", "test"):
        rows = [p for p in predictions if in_half(p.run, half)]
        own = [p for p in rows if is_timed(p, min_mfu)]
        halves[half] = coverage(own, rows, errors)
        steps = coverage(as_new(own), [], errors)["step_seconds"]
        halves[half]["step_seconds"] |= {kind: steps[kind] for kind in KINDS[:2] if kind in steps}
    return ErrorCalibration(errors, halves)


def as_new(timed: Sequence[Prediction]) -> list[Prediction]:
    """The rows twice: as if their part had never been seen, and as if their software had not."""
    parts = [replace(row, kind=NEW_PART, step_seconds=seconds_of_new_part(row)) for row in timed]
    return parts + [replace(p, kind=NEW_SOFTWARE) for p in without_own_numbers(timed)]


def without_own_numbers(timed: Sequence[Prediction]) -> list[Prediction]:
    """The rows predicted with the medians of the other profiles' numbers."""
    found = []
    for rows in by_profile(timed).values():
        software = rows[0].job.scenario.software
        stranger = with_coefficients(software, values_of_others(software), "other profiles")
        found += [replace(row, step_seconds=step_seconds(row, stranger)) for row in rows]
    return found


def seconds_of_new_part(row: Prediction) -> float:
    """The row's step at the median of the clocks under load that other parts were fitted to."""
    scenario = row.job.scenario
    own = scenario.topology.accelerator
    clock = median(value for name, value in _clocks().items() if name != own.name)
    part = own.replace(sustained_fraction=Figure(clock, "other parts", "assumed"))
    topology = scenario.topology.model_copy(update={"accelerator": part})
    ctx = CostContext.of(scenario.model_copy(update={"topology": topology}))
    return float(step.evaluate(ctx, row.job.layout, row.splits).total)


@cache
def _clocks() -> dict[str, float]:
    parts = [load(name, "accelerator", Accelerator) for name in names("accelerator")]
    return {part.name: float(part.sustained_fraction) for part in parts if is_known(part)}


# ---------------------------------------------------------------- ends


def ends_by_kind(
    rows: Sequence[Prediction], error: Callable[[Prediction], float | None]
) -> dict[str, MeasuredInterval]:
    """Ends of every kind. Rows of new parts and software count in their own kind alone."""
    known = [row for row in rows if row.kind not in KINDS[:2]]
    of_all = known or list(rows)
    found = {}
    for kind in KINDS:
        own = [row for row in rows if row.kind == kind]
        used = own if len(own) >= LEAST_ROWS and _num_sources(own) > 1 else of_all
        if not used:
            found[kind] = _wide()
            continue
        found[kind] = _ends(used, of_all, error, shrunk=used is own)
    return found


def _ends(
    rows: Sequence[Prediction],
    of_all: Sequence[Prediction],
    error: Callable[[Prediction], float | None],
    shrunk: bool,
) -> MeasuredInterval:
    low, high = _quantiles(rows, error)
    if shrunk and rows[0].kind not in KINDS[:2]:
        share = len(rows) / (len(rows) + SHRINK_ROWS)
        all_low, all_high = _quantiles(of_all, error)
        low, high = (
            share * own + (1 - share) * whole for own, whole in ((low, all_low), (high, all_high))
        )
    sources = _num_sources(rows)
    text = (
        f"quantiles of measured / predicted over {len(rows)} rows of {sources} sources, fitting "
        "half of scenarios/published"
    )
    text += "" if shrunk else "; those of all kinds, as this one has too few"
    # a bar holds its prediction
    return MeasuredInterval(
        rows=len(rows),
        sources=sources,
        low=Figure(_digits(min(1.0, np.exp(low))), text, "fitted"),
        high=Figure(_digits(max(1.0, np.exp(high))), text, "fitted"),
    )


def _num_sources(rows: Sequence[Prediction]) -> int:
    return len({row.run.publication for row in rows})


def _quantiles(
    rows: Sequence[Prediction], error: Callable[[Prediction], float | None]
) -> tuple[float, float]:
    signed = np.array([error(row) for row in rows], dtype=float)
    outside = (1 - COVERAGE) / 2
    low, high = weighted_quantiles(-np.log1p(signed), _weights(rows), (outside, 1 - outside))
    wider = widening(_num_sources(rows))
    return wider * low, wider * high


def _weights(rows: Sequence[Prediction]) -> Floats:
    """1 each; of new parts and software, so that each part or profile counts once."""
    groups = [_group(row) for row in rows]
    count = Counter(groups)
    return np.array([1.0 / count[group] if group else 1.0 for group in groups])


def _group(row: Prediction) -> str:
    if row.kind == NEW_PART:
        return row.job.scenario.topology.accelerator.name
    return row.job.scenario.software.name if row.kind == NEW_SOFTWARE else ""


def weighted_quantiles(
    values: Floats, weights: Floats, shares: tuple[float, float]
) -> tuple[float, float]:
    """Quantiles of weighted values: a value stands at the middle of its weight, lines between."""
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    middle = (np.cumsum(weights) - weights / 2) / np.sum(weights)
    low, high = np.interp(shares, middle, values)
    return float(low), float(high)


def widening(num_sources: int) -> float:
    """How much wider a bar from so few sources is than one from many."""
    if num_sources >= MANY_SOURCES:
        return 1.0
    return float(STUDENT[max(1, num_sources - 1)] / NORMAL * np.sqrt(1 + 1 / num_sources))


def _wide() -> MeasuredInterval:
    text = "no row: a factor of two either way"
    return MeasuredInterval(
        rows=0, sources=0, low=Figure(0.5, text, "assumed"), high=Figure(2.0, text, "assumed")
    )


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


# ---------------------------------------------------------------- the file


def errors_yaml(errors: PredictionErrors) -> str:
    """The bars as YAML, an end a line with source and status."""
    lines = [HEAD.rstrip(), f"coverage: {_figure(errors.coverage)}"]
    for quantity in ("step_seconds", "peak_bytes"):
        lines.append(f"{quantity}:")
        for kind, ends in getattr(errors, quantity).items():
            lines += [f"  {kind}:", f"    rows: {ends.rows}", f"    sources: {ends.sources}"]
            lines += [f"    {end}: {_figure(getattr(ends, end))}" for end in ("low", "high")]
    return "\n".join(lines) + "\n"


def _figure(figure: Figure) -> str:
    return f'{{value: {float(figure):g}, source: "{figure.source}", status: {figure.status}}}'
