"""Predictions compared with published training runs: `planner validate runs`.

    runs = read_runs("scenarios/published/measured_runs.jsonl")
    validate_runs(runs, quality="AB", min_mfu=0.15).to_document()

Peak memory is compared without the `runtime` term: sources print what the training process's
allocator held, which does not include the context and communicators.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from planner.cost import prediction_intervals as intervals
from planner.cost.prediction_intervals import MeasuredInterval, PredictionErrors
from planner.evidence.metrics import (
    Candidate,
    Coverage,
    Fits,
    MemoryErrors,
    Ranking,
    TimeErrors,
    mean,
)
from planner.evidence.published_runs import PublishedRun
from planner.evidence.row_predictions import (
    Half,
    Models,
    PredictedRows,
    Prediction,
    Selection,
    is_timed,
    predict_rows,
)
from planner.layouts.layout import Layout

IntervalCoverage = Mapping[str, Mapping[str, Coverage]]
"""step_seconds or peak_bytes → interval kind, or `all` → coverage."""


@dataclass(frozen=True, slots=True)
class AssumedSoftware:
    """Errors of rows of frameworks without a profile, which the fallback profile predicts.

    by_framework: a row's framework, or `unknown` → errors.
    """

    time: TimeErrors
    by_framework: Mapping[str, TimeErrors]
    memory: MemoryErrors
    intervals: IntervalCoverage

    @classmethod
    def of(cls, predictions: Sequence[Prediction], min_mfu: float) -> AssumedSoftware:
        """Of these rows; min_mfu as of `Selection`."""
        timed = [p for p in predictions if is_timed(p, min_mfu)]
        return cls(
            time=errors_of(timed),
            by_framework=errors_by(timed, lambda p: p.run.framework or "unknown"),
            memory=memory_errors_of(predictions),
            intervals=coverage(timed, predictions, intervals.shipped()),
        )


@dataclass(frozen=True, slots=True)
class Validation:
    """Errors of the predictions, as `planner validate runs --json` prints them.

    rows_skipped: reason → rows. by_axis: axis of AXES → the rows' value → errors.
    macro_: means over sources, each counted once. Rows of assumed software count in their own
    errors only.
    """

    rows_scored: int
    rows_skipped: Mapping[str, int]
    rows_assumed_network: int
    rows_assumed_software: int
    assumed_software: AssumedSoftware
    time: TimeErrors
    by_source: Mapping[str, TimeErrors]
    by_accelerator: Mapping[str, TimeErrors]
    by_axis: Mapping[str, Mapping[str, TimeErrors]]
    macro_mape_fraction: float | None
    macro_pairwise_fraction: float | None
    ranking: Ranking
    fits: Fits
    memory: MemoryErrors
    intervals: IntervalCoverage

    def to_document(self) -> dict[str, Any]:
        """The result as JSON values."""
        return asdict(self) | {"fits": self.fits.to_document()}


def validate_runs(
    runs: Iterable[PublishedRun],
    *,
    quality: str = "AB",
    min_mfu: float = 0.0,
    half: Half = "all",
    models: Models = "all",
) -> Validation:
    """Predict published runs and summarise the errors; options are those of `Selection`.

    Raises:
        InputError: an option is none of its values.
    """
    selection = Selection(quality, min_mfu, half, models)
    return summarise(predict_rows(selection.rows(runs)), min_mfu)


# ---------------------------------------------------------------- summaries


def summarise(predicted: PredictedRows, min_mfu: float) -> Validation:
    """Every metric of the predictions; they do not depend on the order of rows.

    min_mfu: as of `Selection`.
    """
    predictions = predicted.rows
    timed = [p for p in predictions if is_timed(p, min_mfu)]
    by_source = errors_by(timed, lambda p: p.source)
    source_mapes = [errors.mape_fraction for errors in by_source.values()]
    groups = ranking_groups(predictions, min_mfu)
    groups_of_source: dict[str, list[Sequence[Candidate]]] = defaultdict(list)
    for source, group in groups:
        groups_of_source[source].append(group)
    source_pairs = [Ranking.of(members).pairwise_fraction for members in groups_of_source.values()]
    return Validation(
        rows_scored=len(predictions),
        rows_skipped=dict(sorted(predicted.skipped.items())),
        rows_assumed_network=sum(p.job.assumed_network for p in predictions),
        rows_assumed_software=len(predicted.assumed_software),
        assumed_software=AssumedSoftware.of(predicted.assumed_software, min_mfu),
        time=errors_of(timed),
        by_source=by_source,
        by_accelerator=errors_by(timed, lambda p: p.scenario.topology.accelerator.name),
        by_axis={axis: errors_by(timed, value_of) for axis, value_of in AXES.items()},
        macro_mape_fraction=mean([mape for mape in source_mapes if mape is not None]),
        macro_pairwise_fraction=mean([share for share in source_pairs if share is not None]),
        ranking=Ranking.of([group for _, group in groups]),
        fits=Fits.of(_verdicts(predictions)),
        memory=memory_errors_of(predictions),
        intervals=coverage(timed, predictions, intervals.shipped()),
    )


def _verdicts(predictions: Iterable[Prediction]) -> list[tuple[str, bool]]:
    """(verdict, whether it ran out of memory) of the rows that are known to have run or not."""
    return [
        (p.verdict, p.run.measured.oom)
        for p in predictions
        if p.run.measured.oom or p.measured_seconds is not None
    ]


def errors_of(timed: Iterable[Prediction]) -> TimeErrors:
    """Errors of step time of the rows."""
    return TimeErrors.of([error for p in timed if (error := p.time_error) is not None])


def memory_errors_of(predictions: Iterable[Prediction]) -> MemoryErrors:
    """Errors of peak memory of the rows that measured it."""
    return MemoryErrors.of([error for p in predictions if (error := p.memory_error) is not None])


def errors_by(
    timed: Iterable[Prediction], value_of: Callable[[Prediction], str]
) -> dict[str, TimeErrors]:
    """Errors of step time by a value of the rows."""
    rows_of: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in timed:
        rows_of[value_of(prediction)].append(prediction)
    return {value: errors_of(rows_of[value]) for value in sorted(rows_of)}


def _doublings(degree: int) -> str:
    """Degrees by octave: 1, 2, 3-4, 5-8, ..."""
    last = 2 ** (degree - 1).bit_length()
    return str(last) if last <= 2 else f"{last // 2 + 1}-{last}"


AXES: Mapping[str, Callable[[Prediction], str]] = {
    "tp": lambda p: str(p.layout.tp),
    "cp": lambda p: str(p.layout.cp),
    "pp": lambda p: _doublings(p.layout.pp),
    "dp": lambda p: _doublings(p.layout.dp),
    "precision": lambda p: p.scenario.training.precision,
    "recompute": lambda p: p.layout.recompute,
    "software": lambda p: p.scenario.software.name,
}
"""What errors are broken down by, besides source and accelerator: axis → a row's value."""


# ---------------------------------------------------------------- ranking


def ranking_groups(
    predictions: Iterable[Prediction], min_mfu: float
) -> list[tuple[str, list[Candidate]]]:
    """(publication, timed and out-of-memory rows) of every group worth ranking.

    Worth ranking are at least two timed rows whose layouts differ; overlap is the software's
    choice and does not make a different layout.
    """
    members: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in predictions:
        group = prediction.run.rank_group
        if group and (prediction.run.measured.oom or is_timed(prediction, min_mfu)):
            members[group].append(prediction)
    groups = []
    for name in sorted(members):
        # picks take the first of equal rows, so their order must not be the file's
        rows = sorted(members[name], key=lambda p: p.run.id)
        if len({_without_overlap(p.layout) for p in rows if not p.run.measured.oom}) >= 2:
            groups.append((rows[0].source, [p.candidate for p in rows]))
    return groups


def _without_overlap(layout: Layout) -> Layout:
    return replace(layout, overlap="none")


# ---------------------------------------------------------------- prediction intervals


def coverage(
    timed: Sequence[Prediction], predictions: Sequence[Prediction], table: PredictionErrors
) -> dict[str, dict[str, Coverage]]:
    """The share of measured steps and peaks inside their prediction intervals, as IntervalCoverage.

    timed: rows whose step times count; predictions: those whose peaks do, where measured.
    """
    times = ((p.interval_kind, p.time_error, p.cluster_factors) for p in timed)
    peaks = ((p.interval_kind, p.memory_error, (1.0, 1.0)) for p in predictions)
    return {
        "step_seconds": _coverage(table.step_seconds, times),
        "peak_bytes": _coverage(table.peak_bytes, peaks),
    }


def _coverage(
    interval_of: Mapping[str, MeasuredInterval],
    errors: Iterable[tuple[str, float | None, tuple[float, float]]],
) -> dict[str, Coverage]:
    rows_of: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in intervals.KINDS}
    for kind, error, (lowest, highest) in errors:
        if error is not None:
            interval = interval_of[kind]
            # an error is predicted / measured − 1, intervals are of measured / predicted
            rows_of[kind].append(
                (1 / (1 + error), lowest * float(interval.low), highest * float(interval.high))
            )
    every = [row for rows in rows_of.values() for row in rows]
    by_kind = {kind: Coverage.of(rows) for kind, rows in rows_of.items() if rows}
    return {**by_kind, "all": Coverage.of(every)}
