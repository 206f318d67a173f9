"""Everything the accuracy page shows: errors, a point per row, peers on their rows."""

import json
from collections.abc import Callable

import pytest

from planner.errors import InputError
from planner.evidence.maintenance.accuracy import PEERS, Peers, measure_accuracy, peers
from planner.evidence.maintenance.left_out import predict_left_out
from planner.evidence.published_runs import PUBLISHED_RUNS, PublishedRun, read_runs
from planner.evidence.row_predictions import Selection
from planner.evidence.validate_runs import validate_runs
from planner.inputs.files import data_root
from planner.inputs.values import parse

MakeRun = Callable[..., PublishedRun]


def test_errors_and_points_are_those_of_validate(off_by: MakeRun) -> None:
    runs = [off_by(0.02 * i, id=str(i), config_key=str(i)) for i in range(8)]
    found = measure_accuracy(runs, Selection())
    assert found.validation == validate_runs(runs)
    assert [point["id"] for point in found.points] == [str(i) for i in range(8)]
    for i, point in enumerate(found.points):
        assert point["error_fraction"] == pytest.approx(0.02 * i, abs=1e-12)
        ratio = point["predicted_seconds"] / point["measured_seconds"]
        assert ratio == pytest.approx(1 + 0.02 * i)
        assert (point["tp"], point["pp"], point["dp"]) == ("2", "2", "3-4")
    assert all(point["fitted"] for point in found.points)
    json.dumps(found.to_document(), allow_nan=False)


def test_rows_left_out_are_points_of_their_own(off_by: MakeRun) -> None:
    runs = [off_by(0.02 * i, id=str(i), source=f"s/{i % 2}") for i in range(8)]
    left_out = predict_left_out(runs, Selection())
    found = measure_accuracy(runs, Selection(), left_out)
    apart = [point for point in found.points if not point["fitted"]]
    assert len(apart) == len(found.points) - len(apart) == 8
    errors = [row.time_error for row in left_out.timed]
    assert [point["error_fraction"] for point in apart] == errors


def test_axes_cut_the_rows_without_losing_any(off_by: MakeRun) -> None:
    runs = [
        off_by(0.1, id="1"),
        off_by(0.3, id="2", tp=1, dp=8, grad_accum=8),
        off_by(-0.1, id="3", dtype="fp8", recompute="full"),
    ]
    by_axis = validate_runs(runs).by_axis
    for axis, values in by_axis.items():
        assert sum(errors.rows for errors in values.values()) == 3, axis
    assert by_axis["dp"]["5-8"].bias_fraction == pytest.approx(0.3)
    assert by_axis["precision"]["fp8"].bias_fraction == pytest.approx(-0.1)
    assert by_axis["recompute"]["none"].mape_fraction == pytest.approx(0.2)


def test_peers_are_compared_with_our_errors_on_their_rows(off_by: MakeRun) -> None:
    torchtitan = {"source": "pytorch/torchtitan", "framework": "Megatron-LM"}
    runs = [
        off_by(0.1, id="1", model_name="llama3.1-405b", **torchtitan),
        off_by(-0.3, id="2", model_name="llama3-8b", **torchtitan),
        off_by(0.5, id="3", model_name="llama3.1-405b"),
    ]
    rows = {row["rows"]: row for row in measure_accuracy(runs, Selection()).peer_rows}
    ours = rows["torchtitan, 405B"]["ours"]["fitted"]
    assert (ours["rows"], ours["mape_fraction"]) == (1, pytest.approx(0.1))
    assert rows["torchtitan, 405B"]["mape_fraction"] == 0.235
    assert rows["DLPerf"]["ours"]["fitted"]["mape_fraction"] is None


def test_every_peer_has_published_rows() -> None:
    published = read_runs(PUBLISHED_RUNS)
    assert len(peers().best_by_source) == 10
    for peer in peers().best_by_source:
        assert any(
            run.publication == peer.publication and peer.model in run.model_name.casefold()
            for run in published
        ), peer.rows


def test_a_wrong_peer_file_is_refused() -> None:
    text = (data_root() / PEERS).read_text("utf-8")
    for old, new in (("mape: 0.095", "mape: -1"), ("status: measured", "status: heard")):
        assert old in text
        with pytest.raises(InputError):
            parse(text.replace(old, new, 1), PEERS, Peers)


def test_assumed_software_is_no_point(off_by: MakeRun) -> None:
    runs = [off_by(0.1, id="1"), off_by(0.5, id="2", framework="Homemade")]
    found = measure_accuracy(runs, Selection())
    assert [point["id"] for point in found.points] == ["1"]
    assert found.validation.rows_assumed_software == 1
