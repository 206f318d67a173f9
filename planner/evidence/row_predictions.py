"""Which published rows count, and what the planner predicts for each."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from planner.cost import memory, step
from planner.cost import prediction_intervals as intervals
from planner.cost.context import CostContext
from planner.cost.traffic import Splits
from planner.errors import InputError, PlannerError, nearest_of
from planner.evidence.metrics import Candidate
from planner.evidence.published_runs import PublishedRun, UnscorableError
from planner.evidence.row_jobs import Job, job_of
from planner.evidence.row_models import has_experts
from planner.layouts.layout import Layout
from planner.layouts.rank_orders import order_splits
from planner.problem.overheads import ENDS
from planner.problem.scenario import Scenario
from planner.problem.software import Software

Half = Literal["fit", "test", "all"]
"""fit, test: halves of all rows; numbers fitted to one can be judged by the other."""

Models = Literal["dense", "moe", "all"]
QUALITIES = "ABCD"

# ---------------------------------------------------------------- which rows


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows are predicted, and which of them count in time and ranking.

    quality: letters of QUALITIES that a row may have.
    min_mfu: timed rows of a lower MFU, against the dense BF16 peak, do not count in time and
    ranking; 0 to 1.

    Raises:
        InputError: an option is none of its values.
    """

    quality: str = "AB"
    min_mfu: float = 0.0
    half: Half = "all"
    models: Models = "all"

    def __post_init__(self) -> None:
        if not self.quality or set(self.quality) - set(QUALITIES):
            raise InputError(
                f"'{self.quality}' names no qualities",
                key="quality",
                allowed=f"letters of {QUALITIES}",
            )
        if not 0 <= self.min_mfu <= 1:
            raise InputError(
                f"{self.min_mfu} is no share",
                key="min-mfu",
                value=self.min_mfu,
                allowed="a number from 0 to 1",
            )
        for key, value, known in (
            ("half", self.half, ("fit", "test", "all")),
            ("models", self.models, ("dense", "moe", "all")),
        ):
            if value not in known:
                raise InputError(
                    f"'{value}' is not known here",
                    key=key,
                    allowed=", ".join(known),
                    nearest=nearest_of(value, known),
                )

    def rows(self, runs: Iterable[PublishedRun]) -> list[PublishedRun]:
        """The rows of these qualities, half and models; slow ones are among them."""
        return [
            run
            for run in runs
            if run.quality in self.quality
            and in_half(run, self.half)
            and self.models in ("all", "moe" if has_experts(run) else "dense")
        ]


def in_half(run: PublishedRun, half: Half) -> bool:
    """Whether a row is in a half: `test` where the last hex digit of the SHA-256 is odd.

    Hashed is the first given of rank_group, split_hint and config_key, so that no two rows that
    are ranked against each other, or repeat each other, fall into different halves.
    """
    text = run.rank_group or run.split_hint or run.repeat_key
    odd = int(hashlib.sha256(text.encode()).hexdigest()[-1], 16) % 2 == 1
    return half == "all" or odd == (half == "test")


# ---------------------------------------------------------------- what is predicted


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the planner predicts for one published run.

    splits: how many members of each group each tier joins, in the framework's own rank order.
    peak_bytes: of the rank of the fullest stage; allocated_bytes: the same without the runtime
    term, which is what a training process's allocator can report.
    interval_kind: of planner.cost.prediction_intervals.KINDS. cluster_factors: from the step to
    those at the low and the high end of what clusters differ by.
    """

    job: Job
    splits: Splits
    step_seconds: float
    peak_bytes: float
    allocated_bytes: float
    verdict: str
    interval_kind: str
    cluster_factors: tuple[float, float]

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
        """Predicted / measured − 1 of the step time; null where none was measured."""
        measured = self.measured_seconds
        return None if measured is None else self.step_seconds / measured - 1

    @property
    def memory_error(self) -> float | None:
        """Predicted / measured − 1 of what the allocator held at its peak; null where unknown."""
        peak = self.run.measured.peak_mem_gb
        return None if peak is None else self.allocated_bytes / (peak * 1e9) - 1

    @property
    def candidate(self) -> Candidate:
        """The row as ranked, with costs in accelerator-seconds per token."""
        training = self.scenario.training
        tokens = float(training.global_batch_size) * training.sequence_length
        seconds_to_cost = self.scenario.num_accelerators / tokens
        measured = None if self.run.measured.oom else self.measured_seconds
        return Candidate(
            id=self.run.id,
            repeat_key=self.run.repeat_key,
            predicted=self.step_seconds * seconds_to_cost,
            measured=None if measured is None else measured * seconds_to_cost,
            fits=self.verdict != "no",
        )


def predict(job: Job) -> Prediction:
    """The cost of a published run's layout in the framework's own rank order."""
    ctx = CostContext.of(job.scenario)
    splits = usual_splits(job.scenario.software, job.layout, job.fill)
    stages, peak = memory.worst_stage(ctx, job.layout)
    seconds = float(step.evaluate(ctx, job.layout, splits).total)
    low, high = (
        float(step.evaluate(ctx.at_cluster_end(end), job.layout, splits).total) for end in ENDS
    )
    return Prediction(
        job=job,
        splits=splits,
        step_seconds=seconds,
        cluster_factors=(low / seconds, high / seconds),
        peak_bytes=float(peak),
        allocated_bytes=float(np.max(stages.total - stages.runtime)),
        verdict=memory.VERDICTS[int(memory.verdict_index(ctx, job.layout, peak))],
        interval_kind=intervals.KINDS[int(intervals.kind_index(ctx, job.layout))],
    )


def usual_splits(software: Software, layout: Layout, fill: Sequence[int]) -> Splits:
    """How groups split over tiers in the first rank order of the software, as most jobs run."""
    rank_order = next(iter(software.orders.values()))
    return order_splits(layout, rank_order, fill)


class PredictedRows(NamedTuple):
    """Predictions of the rows that can be scored, and reason → rows of the others.

    rows: of frameworks with a profile, which fits and figures are of. assumed_software: of others,
    predicted with the fallback profile, which have errors of their own.
    """

    rows: list[Prediction]
    assumed_software: list[Prediction]
    skipped: Mapping[str, int]


def predict_rows(runs: Iterable[PublishedRun]) -> PredictedRows:
    """Predict what can be predicted, and count the reasons why the rest cannot."""
    rows: list[Prediction] = []
    assumed_software: list[Prediction] = []
    skipped = Counter[str]()
    for run in runs:
        try:
            row = _predict_row(run)
        except UnscorableError as error:
            skipped[error.reason] += 1
            continue
        (assumed_software if row.job.assumed_software else rows).append(row)
    return PredictedRows(rows, assumed_software, skipped)


def _predict_row(run: PublishedRun) -> Prediction:
    measured = run.measured
    if run.std.iter_time_s is None and measured.peak_mem_gb is None and not measured.oom:
        raise UnscorableError("nothing measured")
    try:
        return predict(job_of(run))
    # a row that our own values refuse is counted, so that one odd row does not end a validation
    except PlannerError as error:
        raise UnscorableError(f"not costed: {error}") from None


def is_timed(prediction: Prediction, min_mfu: float) -> bool:
    """Whether a row counts in time and ranking: timed, and known to reach min_mfu."""
    run = prediction.run
    if run.std.iter_time_s is None or run.measured.oom:
        return False
    # a run of low MFU waits for something that no layout explains, such as its input
    return min_mfu == 0 or (run.std.mfu_bf16peak_causal or 0.0) >= min_mfu
