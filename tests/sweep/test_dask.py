"""The same rows from Dask workers, also where one is killed."""

from __future__ import annotations

import os
import signal

import pytest

from planner.errors import InputError
from planner.sweep import run_sweep, tasks
from planner.sweep.rows import without_timing
from planner.sweep.workers import DaskWorkers
from tests.sweep.conftest import AXES

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("default")  # the library's own


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as made:
        yield made


@pytest.mark.slow
def test_rows_are_those_of_one_process_though_a_worker_is_killed(
    cluster, write, threads, tmp_path, monkeypatch
) -> None:
    plain = run_sweep(write(AXES), tmp_path / "plain")
    monkeypatch.undo()
    killed = []

    def tell(progress):
        if progress.done == 2 and not killed:
            killed.append(next(iter(cluster.workers.values())).pid)
            os.kill(killed[0], signal.SIGKILL)

    address = cluster.scheduler_address
    found = run_sweep(write(AXES), tmp_path / "dask", scheduler=address, tell=tell)
    assert killed and found.counts == {"optimal": 6}
    assert [without_timing(row) for row in found.rows] == [
        without_timing(row) for row in plain.rows
    ]


def test_workers_of_another_program_are_refused(cluster, write, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("planner.sweep.run.program_version", lambda: "0.0.1+another")
    with pytest.raises(InputError, match=r"a worker runs planner .*, the sweep 0\.0\.1"):
        run_sweep(write(AXES), tmp_path / "out", scheduler=cluster.scheduler_address)


def test_workers_that_cannot_plan_are_named(cluster) -> None:
    workers = DaskWorkers(cluster.scheduler_address)
    future = workers._executor.submit(tasks.unpacked, b"no document")
    with pytest.raises(InputError, match="cannot plan: error: Error -3"):
        workers.result(future)
    workers.stop(at_once=True)


def test_no_scheduler(write, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("planner.sweep.workers.CONNECT_SECONDS", 0.2)
    for address in ("tcp://127.0.0.1:9", "nonsense"):
        with pytest.raises(InputError, match="no Dask scheduler answers"):
            run_sweep(write(AXES), tmp_path / "out", scheduler=address)


def test_the_library_is_named_where_it_is_missing(write, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(InputError, match=r"parallelism-planner\[dask\]"):
        run_sweep(write(AXES), tmp_path / "out", scheduler="tcp://127.0.0.1:9")
