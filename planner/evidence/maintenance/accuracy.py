"""Everything the accuracy page shows: `planner validate runs --report DIR`.

    report = measure_accuracy(runs, Selection(min_mfu=0.15))
    report.to_document()                 # tables, and a point per row for pictures

Every timed row, what other planners reach on the same rows, and what is left out.
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
from planner.evidence.row_predictions import Prediction, Selection, is_timed, predict_rows
from planner.evidence.validate_runs import AXES, Validation, summarise
from planner.inputs.files import data_root
from planner.inputs.quantities import Status
from planner.inputs.values import Strict, parse

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
    """Errors of all rows, which numbers were fitted to; points; the peers; what was left out.

    points: each timed row, and once more as predicted without its source where that was asked for.
    """

    validation: Validation
    points: Sequence[Mapping[str, Any]]
    peer_rows: Sequence[Mapping[str, Any]]
    left_out: LeaveOneOut | None

    def to_document(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "fitted": self.validation.to_document(),
            "points": [dict(point) for point in self.points],
            "peers": [dict(row) for row in self.peer_rows],
            "over_all_dense_rows": dict(peers().over_all_dense_rows),
            "leave_one_out": None if self.left_out is None else self.left_out.to_document(),
        }


def measure_accuracy(
    runs: Iterable[PublishedRun], selection: Selection, left_out: LeaveOneOut | None = None
) -> Accuracy:
    """Everything the accuracy page shows, of all rows whatever half the selection has.

    left_out: `predict_left_out` of the same rows, to show as well.
    """
    predicted = predict_rows(replace(selection, half="all").rows(runs))
    fitted = [row for row in predicted.rows if is_timed(row, selection.min_mfu)]
    apart = [] if left_out is None else list(left_out.timed)
    points = [_point(row, fitted=True) for row in fitted]
    points += [_point(row, fitted=False) for row in apart]
    validation = summarise(predicted, selection.min_mfu)
    return Accuracy(validation, points, _peer_rows(fitted, apart), left_out)


def _point(row: Prediction, *, fitted: bool) -> dict[str, Any]:
    """A row as pictures draw it."""
    return {
        "id": row.name,
        "source": row.source,
        "fitted": fitted,
        "kind": row.interval_kind,
        "measured_seconds": row.measured_seconds,
        "predicted_seconds": row.step_seconds,
        "error_fraction": row.time_error,
        "num_accelerators": row.scenario.num_accelerators,
        "accelerator": row.scenario.topology.accelerator.name,
        **{axis: value_of(row) for axis, value_of in AXES.items()},
    }


def _peer_rows(fitted: Sequence[Prediction], apart: Sequence[Prediction]) -> list[dict[str, Any]]:
    """The best peer of each source it was run on, and our errors on the same rows."""

    def errors(peer: Peer, rows: Sequence[Prediction]) -> dict[str, Any]:
        return asdict(TimeErrors.of([row.time_error or 0.0 for row in rows if peer.covers(row)]))

    return [
        {
            "rows": peer.rows,
            "mape_fraction": peer.mape,
            "in_sample": peer.in_sample,
            "ours": {"fitted": errors(peer, fitted), "left_out": errors(peer, apart)},
        }
        for peer in peers().best_by_source
    ]
