"""A sweep in one process: rows are those of `plan`, finished points are not planned again, what
fails is a row, and a point that kills its workers does not take others with it."""

from __future__ import annotations

import json
import sqlite3

import pytest

from planner import api
from planner.errors import InputError, UnsupportedError
from planner.planning import solve as planning
from planner.planning.plan import Plan
from planner.sweep import read_sweep, run_sweep
from planner.sweep import run as running
from planner.sweep.rows import without_timing
from planner.sweep.store import FILE, Store, _row, locked
from planner.sweep.workers import WorkerDied
from tests.sweep.conftest import AXES

POINTS = [(n, s) for n in (8, 16) for s in (2048, 4096, 8192)]
LENGTH = "training.sequence_length"


def axes_of(found):
    return [tuple(row[axis] for axis in found.axes) for row in found.rows]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def test_rows_are_those_of_plan(write, threads, tmp_path, out) -> None:
    found = run_sweep(write(AXES), out)
    assert axes_of(found) == POINTS and found.axes == ["num_accelerators", LENGTH]
    for row in found.rows:
        overrides = {axis: str(row[axis]) for axis in found.axes}
        best = api.plan(api.load_scenario(tmp_path / "job.yaml", overrides), top_k=1)
        assert best.layout is not None and best.time is not None and best.memory is not None
        for name in ("status", "step_seconds", "objective_seconds", "bound_seconds", "mfu", "hfu",
                     "tokens_per_second", "tokens_per_second_per_accelerator"):  # fmt: skip
            assert row[name] == getattr(best, name), name
        assert row["layout"] == best.layout.label()
        layout = best.layout.to_document()
        assert {k: row[f"layout.{k}"] for k in layout} == layout
        assert {k: row[f"time.{k}"] for k in best.time} == best.time
        assert (row["peak_bytes"], row["memory_verdict"]) == (best.memory.peak_bytes, "fits")
        assert row["reason"] is None and row["wall_seconds"] > 0
        assert (row["model"], row["topology"]) == ("llama3-8b", "dgx-h100")
        assert (row["software"], row["num_accelerators"]) == ("megatron-core", row[found.axes[0]])
        kept = found.plan(row["point"])
        assert isinstance(kept, Plan)
        assert kept.inputs_sha256 == best.inputs_sha256 and kept.time == best.time
    assert len({tuple(row) for row in found.rows}) == 1  # all with the same keys


def test_finished_points_are_not_planned_again(write, threads, out) -> None:
    run_sweep(write(AXES.replace("[8, 16]", "[8]")), out)
    assert threads.planned == POINTS[:3]
    told = []
    found = run_sweep(write(AXES), out, tell=told.append)
    assert threads.planned == POINTS  # the three that were missing
    assert [(told[0].done, told[0].reused, told[0].total), told[-1].done] == [(3, 3, 6), 6]
    again = run_sweep(write(AXES), out)
    assert threads.planned == POINTS
    assert again.rows == found.rows


def test_a_folder_shows_the_sweep_that_was_last_run_into_it(write, threads, out) -> None:
    whole = run_sweep(write(AXES), out)
    part = run_sweep(write(AXES.replace("[8, 16]", "[16]"), "part.yaml"), out)
    assert axes_of(part) == POINTS[3:] and part.name == "part"
    assert [row["key"] for row in part.rows] == [row["key"] for row in whole.rows[3:]]
    assert len(threads.planned) == 6
    assert axes_of(run_sweep(write(AXES), out)) == POINTS and len(threads.planned) == 6


def test_points_that_are_no_scenario_are_failed_rows(write, threads, out) -> None:
    found = run_sweep(write(AXES.replace("[8, 16]", "[8, 16, 1000000]")), out)
    assert found.counts == {"optimal": 6, "failed": 3}
    row = found.rows[-1]
    assert row["status"] == "failed" and "did you mean '131072'" in row["reason"]
    assert row["layout"] is None and row["time.tp"] is None and row["model"] is None
    with pytest.raises(InputError, match="point 8 failed and has no plan"):
        found.plan(8)
    with pytest.raises(InputError, match="no finished point 9"):
        found.plan(9)


@pytest.mark.parametrize("error", [UnsupportedError("not yet"), ZeroDivisionError("by zero")])
def test_a_planning_that_fails_is_a_row(write, threads, out, monkeypatch, error) -> None:
    def plan(scenario, top_k, limit):
        if scenario.training.sequence_length == 4096:
            raise error
        return planning.plan(scenario, top_k, limit)

    monkeypatch.setattr("planner.sweep.tasks.plan", plan)
    found = run_sweep(write(AXES), out)
    assert found.counts == {"optimal": 4, "failed": 2}
    assert str(error) in found.rows[1]["reason"]
    assert found.rows[1]["model"] == "llama3-8b"
    assert run_sweep(write(AXES), out).rows == found.rows and len(threads.planned) == 6


def test_a_point_where_nothing_fits_is_infeasible(write, threads, out) -> None:
    text = "base: job.yaml\naxes: {model: [llama3-8b, llama3-405b]}\n"
    found = run_sweep(write(text), out)
    assert [row["status"] for row in found.rows] == ["optimal", "infeasible"]
    row = found.rows[1]
    assert row["reason"].startswith("no layout fits; tp2")
    assert (row["layout"], row["step_seconds"], row["layout.tp"]) == (None, None, None)
    assert found.plan(1).nearest_miss is not None
    assert found.plan(1).nearest_miss["over_bytes"] / 1e9 == pytest.approx(
        float(row["reason"].split()[-2]), abs=0.05
    )


# ---------------------------------------------------------------- workers that die


def test_a_lost_pool_loses_no_point(write, threads, out) -> None:
    deaths = [WorkerDied(only_point=False), WorkerDied(only_point=False)]
    threads.die = lambda point: deaths.pop() if point == POINTS[2] and deaths else None
    found = run_sweep(write(AXES), out)
    assert found.counts == {"optimal": 6} and threads.renewed == 2
    assert axes_of(found) == POINTS


def test_a_point_that_kills_its_workers_fails_alone(write, threads, out) -> None:
    threads.die = lambda point: WorkerDied(only_point=False) if point == POINTS[1] else None
    found = run_sweep(write(AXES), out)
    assert found.counts == {"optimal": 5, "failed": 1}
    assert "the worker died" in found.rows[1]["reason"]
    threads.die = lambda point: None  # it was the machine: the next run tries it again
    assert run_sweep(write(AXES), out).counts == {"optimal": 6}
    assert threads.planned[-1] == POINTS[1]


def test_workers_that_all_die_end_the_sweep(write, threads, out) -> None:
    threads.die = lambda point: WorkerDied(only_point=False)
    with pytest.raises(InputError, match="the workers die at once"):
        run_sweep(write(AXES), out)


def test_what_was_finished_before_an_interrupt_is_kept(write, threads, out) -> None:
    def tell(progress):
        if progress.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(write(AXES), out, tell=tell)
    done = len(read_sweep(out).rows)
    assert done >= 2 and read_sweep(out).num_points == 6
    before = list(threads.planned)
    assert axes_of(run_sweep(write(AXES), out)) == POINTS
    assert len(threads.planned) - len(before) == 6 - done


# ---------------------------------------------------------------- the folder


def test_a_folder_in_use_is_refused(write, threads, out) -> None:
    with locked(out), pytest.raises(InputError, match=r"another sweep writes .*process \d+ on"):
        run_sweep(write(AXES), out)
    assert run_sweep(write(AXES), out).counts == {"optimal": 6}


def test_what_is_no_sweep_is_refused(write, threads, out, tmp_path) -> None:
    with pytest.raises(InputError, match="no sweep is here"):
        read_sweep(out)
    out.mkdir()
    (out / FILE).write_text("nonsense, and more than a header of it" * 40)
    with pytest.raises(InputError, match="not a database"):
        run_sweep(write(AXES), out)
    with pytest.raises(InputError, match="not a database"):
        read_sweep(out)
    (out / FILE).unlink()
    with sqlite3.connect(out / FILE) as other:
        other.execute("CREATE TABLE results (a)")
    other.close()
    for call in (lambda: run_sweep(write(AXES), out), lambda: read_sweep(out)):
        with pytest.raises(InputError, match="not a sweep's results"):
            call()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        run_sweep(write(AXES), tmp_path / "file")


def test_a_full_disk_is_said(write, threads, out, monkeypatch) -> None:
    begin = Store.begin

    def full(self, points):
        self._db.execute("PRAGMA max_page_count = 10")
        return begin(self, points)

    monkeypatch.setattr(Store, "begin", full)
    with pytest.raises(InputError, match="cannot be written: database or disk is full"):
        run_sweep(write(AXES), out)


def test_the_file_reads_as_one_flat_table(write, threads, out) -> None:
    found = run_sweep(write(AXES), out)
    with sqlite3.connect(out / FILE) as db:
        cursor = db.execute("SELECT * FROM sweep")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
    db.close()
    assert len(rows) == 6 and set(names) == set(found.rows[0])
    for row, expected in zip(rows, found.rows, strict=True):
        split = row.pop("layout.stage_layers")
        assert json.loads(split) == expected["layout.stage_layers"]
        assert row == {k: v for k, v in expected.items() if k != "layout.stage_layers"}
    assert not list(out.glob("*-wal"))


def test_a_running_sweep_can_be_read(write, threads, out) -> None:
    seen = []
    run_sweep(write(AXES), out, tell=lambda p: seen.append((p.done, len(read_sweep(out).rows))))
    assert seen and all(done == read for done, read in seen)


def test_a_sweep_is_read_as_of_one_moment(write, threads, out, monkeypatch) -> None:
    """Another sweep begins in the folder between what the first rows and the count are read."""
    run_sweep(write(AXES), out)
    other = Store(out)

    def meanwhile(*parts):
        other._db.execute("DELETE FROM points")
        return _row(*parts)

    monkeypatch.setattr("planner.sweep.store._row", meanwhile)
    found = read_sweep(out)
    other.close()
    assert len(found.rows) == found.num_points == 6


def test_rows_are_the_same_in_another_folder(write, threads, out, tmp_path) -> None:
    one, two = (run_sweep(write(AXES), folder).rows for folder in (out, tmp_path / "two"))
    assert [without_timing(row) for row in one] == [without_timing(row) for row in two]


def test_bad_arguments(write, threads, out) -> None:
    for words, says in (({"workers": 0}, "workers"), ({"formats": ("xls",)}, "no such format")):
        with pytest.raises(InputError, match=says):
            run_sweep(write(AXES), out, **words)
    assert not out.exists()


def test_progress_says_how_long() -> None:
    half = running.Progress(10, 6, 2, 8.0)
    assert (half.points_per_second, half.seconds_left) == (0.5, 8.0)
    assert running.Progress(10, 2, 2, 0.0).seconds_left is None
