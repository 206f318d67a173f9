"""How accurate predictions are, whole: both halves, every row, other planners beside.

report = accuracy(runs, min_mfu=0.15)
report.to_document()                 # tables, and a point per row for pictures
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from planner.evidence.fits.left_out import LeaveOneOut
from planner.evidence.metrics import TimeErrors
from planner.evidence.peers import peers
from planner.evidence.published_runs import PublishedRun
from planner.evidence.validate_runs import (
    AXES,
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

HALVES: tuple[Half, ...] = ("fit", "test", "all")


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Errors of both halves and of all rows, each timed row as a point, and the peers."""

    halves: Mapping[str, Validation]
    points: Sequence[Mapping[str, Any]]
    beside_peers: Sequence[Mapping[str, Any]]
    left_out: LeaveOneOut | None

    def to_document(self) -> dict[str, Any]:
        """The whole as JSON values."""
        return {
            "halves": {half: found.to_document() for half, found in self.halves.items()},
            "points": [dict(point) for point in self.points],
            "peers": [dict(row) for row in self.beside_peers],
            "over_all_dense_rows": dict(peers().over_all_dense_rows),
            "leave_one_out": None if self.left_out is None else self.left_out.to_document(),
        }


def accuracy(
    runs: Iterable[PublishedRun],
    *,
    quality: str = "AB",
    min_mfu: float = 0.0,
    models: Models = "all",
    left_out: LeaveOneOut | None = None,
) -> Accuracy:
    """Everything the accuracy page shows; `left_out` is `validate_left_out` of the same rows.

    Raises:
        InputError: an option is none of its values.
    """
    check(quality, min_mfu, models=models)
    rows = chosen(runs, quality, models=models)
    halves: dict[str, Validation] = {}
    every: list[Prediction] = []
    for half in HALVES:
        predictions, skipped = predict_runs(chosen(rows, quality, half))
        halves[half] = summarise(predictions, skipped, min_mfu)
        every = predictions  # the last half is all
    timed = [p for p in every if is_timed(p, min_mfu)]
    return Accuracy(halves, [_point(p) for p in timed], _beside_peers(timed), left_out)


def _point(row: Prediction) -> dict[str, Any]:
    return {
        "id": row.run.id,
        "source": row.run.publication,
        "half": "test" if in_half(row.run, "test") else "fit",
        "kind": row.kind,
        "measured_seconds": row.run.std.iter_time_s,
        "predicted_seconds": row.step_seconds,
        "error_fraction": row.time_error,
        "num_accelerators": row.job.scenario.num_accelerators,
        "accelerator": row.job.scenario.topology.accelerator.name,
        **{axis: read(row) for axis, read in AXES.items()},
    }


def _beside_peers(timed: Sequence[Prediction]) -> list[dict[str, Any]]:
    """The best peer of each source it was run on, and our errors on the same rows."""
    found = []
    for peer in peers().best_by_source:
        rows = [row for row in timed if _is_of(row, peer.publication, peer.model, peer.accelerator)]
        halves = {
            half: asdict(
                TimeErrors.of([row.time_error or 0.0 for row in rows if in_half(row.run, half)])
            )
            for half in HALVES
        }
        found.append({"rows": peer.rows, "mape_fraction": peer.mape, "in_sample": peer.in_sample,
                      "ours": halves})  # fmt: skip
    return found


def _is_of(row: Prediction, publication: str, model: str, accelerator: str) -> bool:
    return (
        row.run.publication == publication
        and model in row.run.model_name.casefold()
        and row.job.scenario.topology.accelerator.name.startswith(accelerator)
    )
