"""Error bars calibrated on measured runs: `planner calibrate errors`.

    calibrate_errors(runs).errors

The ends of a bar are quantiles of ln(measured / predicted), (1 - coverage)/2 on each side, over the
fitting half of the rows. The ends of a kind are shrunk to those of all rows,

    end = (n end_of_kind + SHRINK_ROWS end_of_all) / (n + SHRINK_ROWS),   n >= LEAST_ROWS, else all

Rows of one source share their errors: the bars of fewer than MANY_SOURCES sources are widened as
Student's t widens a prediction from so few (t over the normal quantile, times sqrt(1 + 1/sources)).

Software that was never fitted is judged by taking a profile's numbers away: each row is predicted
with the medians of the other profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from planner.bars import KINDS, Ends, PredictionErrors
from planner.errors import InputError
from planner.evidence.fitting import by_profile, step_seconds, values_of_others, with_coefficients
from planner.evidence.metrics import Coverage
from planner.evidence.published import PublishedRun
from planner.evidence.runs import (
    Prediction,
    check,
    chosen,
    coverage,
    in_half,
    is_timed,
    predict_runs,
)
from planner.problem.quantities import Figure

COVERAGE = 0.8
LEAST_ROWS = 30
SHRINK_ROWS = 30.0
MANY_SOURCES = 5
UNFITTED = KINDS[0]

STUDENT = {1: 3.078, 2: 1.886, 3: 1.638}
NORMAL = 1.2816
"""90 % quantiles of Student's t by degrees of freedom (sources less one), and of the normal."""

HEAD = """\
# Ends of the error bars of predicted step times and peak memory, as measured / predicted.
# Written by `planner calibrate errors`; kinds and their order are planner/bars.py's KINDS.
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
        """The bars as a file that `planner.bars` reads."""
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
            "no timed row of the fitting half can be predicted", key="FILE",
            allowed="rows such as those of scenarios/published/measured_runs.jsonl",
        )  # fmt: skip
    strange = [replace(p, kind=UNFITTED) for p in without_own_numbers(timed)]
    peaks = [p for p in fit if p.memory_error is not None]
    errors = PredictionErrors(
        coverage=Figure(COVERAGE, "chosen", "assumed"),
        step_seconds=ends_by_kind(
            [p for p in timed if p.kind != UNFITTED] + strange, lambda p: p.time_error
        ),
        peak_bytes=ends_by_kind(peaks, lambda p: p.memory_error),
    )
    halves = {}
    for half in ("fit", "test"):
        rows = [p for p in predictions if in_half(p.run, half)]
        own = [p for p in rows if is_timed(p, min_mfu)]
        taken = [replace(p, kind=UNFITTED) for p in without_own_numbers(own)]
        halves[half] = coverage(own, rows, errors)
        halves[half]["step_seconds"][UNFITTED] = coverage(taken, [], errors)["step_seconds"]["all"]
    return ErrorCalibration(errors, halves)


def without_own_numbers(timed: Sequence[Prediction]) -> list[Prediction]:
    """The rows predicted with the medians of the other profiles' numbers."""
    found = []
    for rows in by_profile(timed).values():
        software = rows[0].job.scenario.software
        stranger = with_coefficients(software, values_of_others(software), "other profiles")
        found += [replace(row, step_seconds=step_seconds(row, stranger)) for row in rows]
    return found


# ---------------------------------------------------------------- ends


def ends_by_kind(
    rows: Sequence[Prediction], error: Callable[[Prediction], float | None]
) -> dict[str, Ends]:
    """Ends of every kind. Rows of unfitted software count in their own kind alone."""
    known = [row for row in rows if row.kind != UNFITTED]
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
) -> Ends:
    low, high = _quantiles(rows, error)
    if shrunk and rows[0].kind != UNFITTED:
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
    return Ends(
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
    low, high = np.quantile(-np.log1p(signed), (outside, 1 - outside))
    wider = widening(_num_sources(rows))
    return wider * float(low), wider * float(high)


def widening(num_sources: int) -> float:
    """How much wider a bar from so few sources is than one from many."""
    if num_sources >= MANY_SOURCES:
        return 1.0
    return float(STUDENT[max(1, num_sources - 1)] / NORMAL * np.sqrt(1 + 1 / num_sources))


def _wide() -> Ends:
    text = "no row: a factor of two either way"
    return Ends(
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
