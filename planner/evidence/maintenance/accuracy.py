"""Everything the accuracy page shows: `planner validate runs --report DIR`.

    report = measure_accuracy(runs, Selection(min_mfu=0.15))
    report.to_document()                 # tables, and a point per row for pictures

Both halves, every timed row, and what other planners reach on the same rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Annotated, Any

from annotated_types import Gt

from planner.evidence.maintenance.left_out import LeaveOneOut
from planner.evidence.metrics import TimeErrors
from planner.evidence.published_runs import PublishedRun
from planner.evidence.row_predictions import (
    Half,
    Prediction,
    Selection,
    in_half,
    is_timed,
    predict_rows,
)
from planner.evidence.validate_runs import AXES, Validation, summarise
from planner.inputs.files import data_root
from planner.inputs.quantities import Status
from planner.inputs.values import Strict, parse

HALVES: tuple[Half, ...] = ("fit", "test", "all")


# ---------------------------------------------------------------- other planners

PEERS = "scenarios/published/peer_errors.yaml"

PositiveFraction = Annotated[float, Gt(0)]


class Peer(Strict):
    """The lowest MAPE of another planner on rows of a publication (of a model, an accelerator).

    model: in the row's model name; accelerator: what the accelerator's name begins with.
    in_sample: the peer was fitted to these rows.
    """

    rows: str
    publication: str
    mape: PositiveFraction
    model: str = ""
    accelerator: str = ""
    in_sample: bool = False

    def covers(self, row: Prediction) -> bool:
        """Whether the peer was run on the row."""
        return (
            row.source == self.publication
            and self.model in row.run.model_name.casefold()
            and row.scenario.topology.accelerator.name.startswith(self.accelerator)
        )


class Peers(Strict):
    """Where the figures come from, and the figures."""

    source: str
    status: Status
    best_by_source: tuple[Peer, ...]
    over_all_dense_rows: dict[str, PositiveFraction]


@cache
def peers() -> Peers:
    """The figures that ship."""
    return parse((data_root() / PEERS).read_text("utf-8"), PEERS, Peers)


# ---------------------------------------------------------------- the report


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Errors of both halves and of all rows, each timed row as a point, and the peers."""

    halves: Mapping[Half, Validation]
    points: Sequence[Mapping[str, Any]]
    peer_rows: Sequence[Mapping[str, Any]]
    left_out: LeaveOneOut | None

    def to_document(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "halves": {half: errors.to_document() for half, errors in self.halves.items()},
            "points": [dict(point) for point in self.points],
            "peers": [dict(row) for row in self.peer_rows],
            "over_all_dense_rows": dict(peers().over_all_dense_rows),
            "leave_one_out": None if self.left_out is None else self.left_out.to_document(),
        }


def measure_accuracy(
    runs: Iterable[PublishedRun], selection: Selection, left_out: LeaveOneOut | None = None
) -> Accuracy:
    """Everything the accuracy page shows, of both halves whatever the selection's.

    left_out: `predict_left_out` of the same rows, to show as well.
    """
    rows = list(runs)  # they are gone through once for each half
    halves: dict[Half, Validation] = {}
    every: list[Prediction] = []
    for half in HALVES:
        predictions, skipped = predict_rows(replace(selection, half=half).rows(rows))
        halves[half] = summarise(predictions, skipped, selection.min_mfu)
        every = predictions  # the last half is all
    timed = [row for row in every if is_timed(row, selection.min_mfu)]
    return Accuracy(halves, [_point(row) for row in timed], _peer_rows(timed), left_out)


def _point(row: Prediction) -> dict[str, Any]:
    """A row as pictures draw it."""
    return {
        "id": row.name,
        "source": row.source,
        "half": "test" if in_half(row.run, "test") else "fit",
        "kind": row.interval_kind,
        "measured_seconds": row.measured_seconds,
        "predicted_seconds": row.step_seconds,
        "error_fraction": row.time_error,
        "num_accelerators": row.scenario.num_accelerators,
        "accelerator": row.scenario.topology.accelerator.name,
        **{axis: value_of(row) for axis, value_of in AXES.items()},
    }


def _peer_rows(timed: Sequence[Prediction]) -> list[dict[str, Any]]:
    """The best peer of each source it was run on, and our errors on the same rows."""
    table = []
    for peer in peers().best_by_source:
        rows = [row for row in timed if peer.covers(row)]
        ours = {
            half: asdict(
                TimeErrors.of([row.time_error or 0.0 for row in rows if in_half(row.run, half)])
            )
            for half in HALVES
        }
        table.append(
            {
                "rows": peer.rows,
                "mape_fraction": peer.mape,
                "in_sample": peer.in_sample,
                "ours": ours,
            }
        )
    return table
