"""Predictions held against published training runs: `planner validate runs`.

    runs = read_runs("scenarios/published/measured_runs.jsonl")
    validate_runs(runs, quality="AB", min_mfu=0.15).to_document()

Peak memory is compared without the `runtime` term: sources print what the training process's
allocator held, not the context and communicators beside it.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from planner.cost import memory, step
from planner.cost import prediction_intervals as bars
from planner.cost.context import CostContext
from planner.cost.prediction_intervals import Ends, PredictionErrors
from planner.cost.traffic import Splits
from planner.errors import InputError, PlannerError, nearest_of
from planner.evidence.metrics import (
    Candidate,
    Coverage,
    Fits,
    MemoryErrors,
    Ranking,
    TimeErrors,
    mean,
)
from planner.evidence.published_runs import PublishedRun, UnscorableError
from planner.evidence.row_jobs import Job, job_of
from planner.evidence.row_models import has_experts
from planner.layouts.layout import Layout
from planner.layouts.rank_orders import order_splits
from planner.problem.scenario import Scenario

Half = Literal["fit", "test", "all"]
Models = Literal["dense", "moe", "all"]
QUALITIES = "ABCD"


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the planner says of one published run."""

    job: Job
    splits: Splits  # of the framework's own rank order
    step_seconds: float
    peak_bytes: float  # of the fullest stage's rank
    allocated_bytes: float  # the same without the runtime term
    verdict: str
    kind: str  # of planner.cost.prediction_intervals.KINDS

    @property
    def run(self) -> PublishedRun:
        """The row."""
        return self.job.run

    @property
    def name(self) -> str:
        """The row's id."""
        return self.run.id

    @property
    def source(self) -> str:
        """The row's publication."""
        return self.run.publication

    @property
    def scenario(self) -> Scenario:
        """What ran."""
        return self.job.scenario

    @property
    def layout(self) -> Layout:
        """How it ran."""
        return self.job.layout

    @property
    def measured_seconds(self) -> float | None:
        """Of a step; null where none was measured."""
        return self.run.std.iter_time_s

    @property
    def time_error(self) -> float | None:
        """Signed relative error of step time; null where none was measured."""
        measured = self.run.std.iter_time_s
        return None if measured is None else self.step_seconds / measured - 1

    @property
    def memory_error(self) -> float | None:
        """Signed relative error of what the allocator held at its peak; null where unknown."""
        peak = self.run.measured.peak_mem_gb
        return None if peak is None else self.allocated_bytes / (peak * 1e9) - 1

    @property
    def candidate(self) -> Candidate:
        """The row as ranked: costs in accelerator-seconds per token."""
        training = self.job.scenario.training
        tokens = float(training.global_batch_size) * training.sequence_length
        share = self.job.scenario.num_accelerators / tokens
        measured = None if self.run.measured.oom else self.run.std.iter_time_s
        return Candidate(
            id=self.run.id,
            repeat_key=self.run.repeat_key,
            predicted=self.step_seconds * share,
            measured=None if measured is None else measured * share,
            fits=self.verdict != "no",
        )


def predict(job: Job) -> Prediction:
    """Cost a published run's layout in the framework's own rank order."""
    ctx = CostContext.of(job.scenario)
    axes = next(iter(job.scenario.software.orders.values()))
    splits = order_splits(job.layout, axes, job.fill)
    stages, peak = memory.worst_stage(ctx, job.layout)
    return Prediction(
        job=job,
        splits=splits,
        step_seconds=float(step.evaluate(ctx, job.layout, splits).total),
        peak_bytes=float(peak),
        allocated_bytes=float(np.max(stages.total - stages.runtime)),
        verdict=memory.VERDICTS[int(memory.verdict_index(ctx, job.layout, peak))],
        kind=bars.KINDS[int(bars.kind_index(ctx, job.layout))],
    )


def in_half(run: PublishedRun, half: Half) -> bool:
    """Whether a row is in a half: `test` where the last hex digit of the sha256 is odd.

    Hashed is the first given of rank_group, split_hint, config_key: no group is split.
    """
    text = run.rank_group or run.split_hint or run.repeat_key
    odd = int(hashlib.sha256(text.encode()).hexdigest()[-1], 16) % 2 == 1
    return half == "all" or odd == (half == "test")


@dataclass(frozen=True, slots=True)
class Validation:
    """Errors of the predictions, as `planner validate runs --json` prints them."""

    rows_scored: int
    rows_skipped: Mapping[str, int]
    rows_assumed_network: int
    time: TimeErrors
    by_source: Mapping[str, TimeErrors]
    by_accelerator: Mapping[str, TimeErrors]
    by_axis: Mapping[str, Mapping[str, TimeErrors]]  # of AXES: what the rows had -> errors
    macro_mape_fraction: float | None
    macro_pairwise_fraction: float | None
    ranking: Ranking
    fits: Fits
    memory: MemoryErrors
    bars: Mapping[str, Mapping[str, Coverage]]  # step_seconds, peak_bytes: kind → coverage

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
    """Predict published runs and summarise the errors.

    `quality`, `half` and `models` choose rows; `min_mfu` drops timed rows of a lower MFU (against
    the dense BF16 peak) from time and ranking alone.

    Raises:
        InputError: an option is none of its values.
    """
    check(quality, min_mfu, half, models)
    predictions, skipped = predict_runs(chosen(runs, quality, half, models))
    return summarise(predictions, skipped, min_mfu)


def chosen(
    runs: Iterable[PublishedRun], quality: str, half: Half = "all", models: Models = "all"
) -> list[PublishedRun]:
    """The rows of these qualities, half and kind of models."""
    return [
        run
        for run in runs
        if run.quality in quality
        and in_half(run, half)
        and models in ("all", "moe" if has_experts(run) else "dense")
    ]


def check(quality: str, min_mfu: float, half: str = "all", models: str = "all") -> None:
    """Refuse options that are none of their values."""
    if not quality or set(quality) - set(QUALITIES):
        raise InputError(
            f"'{quality}' names no qualities", key="quality", allowed=f"letters of {QUALITIES}"
        )
    if not 0 <= min_mfu <= 1:
        raise InputError(
            f"{min_mfu} is no share", key="min-mfu", value=min_mfu, allowed="a number from 0 to 1"
        )
    for key, value, known in (
        ("half", half, ("fit", "test", "all")),
        ("models", models, ("dense", "moe", "all")),
    ):
        if value not in known:
            near = nearest_of(value, known)
            raise InputError(
                f"'{value}' is not known here", key=key, allowed=", ".join(known), nearest=near
            )


def predict_runs(runs: Iterable[PublishedRun]) -> tuple[list[Prediction], Counter[str]]:
    """Return the predictions of the rows that can be scored, and counts of why others cannot."""
    predictions, skipped = [], Counter[str]()
    for run in runs:
        try:
            predictions.append(_score(run))
        except UnscorableError as error:
            skipped[error.reason] += 1
    return predictions, skipped


def _score(run: PublishedRun) -> Prediction:
    measured = run.measured
    if run.std.iter_time_s is None and measured.peak_mem_gb is None and not measured.oom:
        raise UnscorableError("nothing measured")
    try:
        return predict(job_of(run))
    except PlannerError as error:
        raise UnscorableError(f"not costed: {error}") from None


# ---------------------------------------------------------------- summaries


def summarise(
    predictions: Sequence[Prediction], skipped: Mapping[str, int], min_mfu: float
) -> Validation:
    """Return every metric of the predictions; they do not depend on the order of rows."""
    timed = [p for p in predictions if is_timed(p, min_mfu)]
    by_source = _errors_by(timed, lambda p: p.run.publication)
    groups = ranking_groups(predictions, min_mfu)
    of_source: dict[str, list[Sequence[Candidate]]] = defaultdict(list)
    for source, group in groups:
        of_source[source].append(group)
    pairwise = [Ranking.of(of_source[source]).pairwise_fraction for source in of_source]
    mapes = [errors.mape_fraction for errors in by_source.values()]
    peaks = [error for p in predictions if (error := p.memory_error) is not None]
    ran_or_not = [
        (p.verdict, p.run.measured.oom)
        for p in predictions
        if p.run.measured.oom or p.run.std.iter_time_s is not None
    ]
    return Validation(
        rows_scored=len(predictions),
        rows_skipped=dict(sorted(skipped.items())),
        rows_assumed_network=sum(p.job.assumed_network for p in predictions),
        time=TimeErrors.of(_errors(timed)),
        by_source=by_source,
        by_accelerator=_errors_by(timed, lambda p: p.job.scenario.topology.accelerator.name),
        by_axis={axis: _errors_by(timed, read) for axis, read in AXES.items()},
        macro_mape_fraction=mean([share for share in mapes if share is not None]),
        macro_pairwise_fraction=mean([share for share in pairwise if share is not None]),
        ranking=Ranking.of([group for _, group in groups]),
        fits=Fits.of(ran_or_not),
        memory=MemoryErrors.of(peaks),
        bars=coverage(timed, predictions, bars.shipped()),
    )


def coverage(
    timed: Sequence[Prediction], predictions: Sequence[Prediction], errors: PredictionErrors
) -> dict[str, dict[str, Coverage]]:
    """How many measured steps and peaks lie inside their bars, by kind and of all."""
    return {
        "step_seconds": _coverage(errors.step_seconds, [(p.kind, p.time_error) for p in timed]),
        "peak_bytes": _coverage(errors.peak_bytes, [(p.kind, p.memory_error) for p in predictions]),
    }


def _coverage(
    ends: Mapping[str, Ends], rows: Iterable[tuple[str, float | None]]
) -> dict[str, Coverage]:
    placed: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in bars.KINDS}
    for kind, error in rows:
        if error is not None:
            end = ends[kind]
            placed[kind].append((1 / (1 + error), float(end.low), float(end.high)))
    found = {kind: Coverage.of(rows) for kind, rows in placed.items() if rows}
    return {**found, "all": Coverage.of([row for rows in placed.values() for row in rows])}


def _doublings(degree: int) -> str:
    """Degrees by octave: 1, 2, 3-4, 5-8, ..."""
    last = 2 ** (degree - 1).bit_length()
    return str(last) if last <= 2 else f"{last // 2 + 1}-{last}"


AXES: Mapping[str, Callable[[Prediction], str]] = {
    "tp": lambda p: str(p.job.layout.tp),
    "cp": lambda p: str(p.job.layout.cp),
    "pp": lambda p: _doublings(p.job.layout.pp),
    "dp": lambda p: _doublings(p.job.layout.dp),
    "precision": lambda p: p.job.scenario.training.precision,
    "recompute": lambda p: p.job.layout.recompute,
    "software": lambda p: p.job.scenario.software.name,
}
"""What errors are told apart by, beside source and accelerator: axis -> a row's value."""


def is_timed(prediction: Prediction, min_mfu: float) -> bool:
    """Whether a row counts in time and ranking: timed, and known to reach the MFU asked for."""
    run = prediction.run
    if run.std.iter_time_s is None or run.measured.oom:
        return False
    return min_mfu == 0 or (run.std.mfu_bf16peak_causal or 0.0) >= min_mfu


def _errors(timed: Iterable[Prediction]) -> list[float]:
    return [error for p in timed if (error := p.time_error) is not None]


def _errors_by(
    timed: Iterable[Prediction], key: Callable[[Prediction], str]
) -> dict[str, TimeErrors]:
    parts: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in timed:
        parts[key(prediction)].append(prediction)
    return {name: TimeErrors.of(_errors(parts[name])) for name in sorted(parts)}


def ranking_groups(
    predictions: Iterable[Prediction], min_mfu: float
) -> list[tuple[str, list[Candidate]]]:
    """Return (publication, timed and out-of-memory rows) of every group worth ranking.

    A group is one with at least two timed rows whose layouts differ; what overlaps is the
    software's doing and makes no other layout.
    """
    members: dict[str, list[Prediction]] = defaultdict(list)
    for prediction in predictions:
        group = prediction.run.rank_group
        if group and (prediction.run.measured.oom or is_timed(prediction, min_mfu)):
            members[group].append(prediction)
    out = []
    for name in sorted(members):
        rows = sorted(members[name], key=lambda p: p.run.id)
        if len({_decided(p.job.layout) for p in rows if not p.run.measured.oom}) >= 2:
            out.append((rows[0].run.publication, [p.candidate for p in rows]))
    return out


def _decided(layout: Layout) -> Layout:
    return replace(layout, overlap="none")
