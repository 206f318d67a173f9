"""Real processes: they give the rows one thread gives, end with the sweep, and none is missed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import planner
from planner.errors import InputError
from planner.sweep import read_sweep, run_sweep
from planner.sweep.rows import without_timing
from tests.sweep.conftest import AXES

MANY = AXES.replace("[8, 16]", "{from: 8, to: 64, times: 2}").replace("4096, ", "4096, 6144, ")
COMMAND = "from planner.cli import main; main()"


def started(sweep: Path, out: Path) -> subprocess.Popen[str]:
    """`planner sweep` in a session of its own, as a shell would start it."""
    words = [
        sys.executable,
        "-c",
        COMMAND,
        "sweep",
        str(sweep),
        "--out",
        str(out),
        "--workers",
        "2",
    ]
    root = str(Path(planner.__file__).parents[1])
    return subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip


def rows_in(out: Path) -> int:
    try:
        return len(read_sweep(out).rows)
    except InputError:  # it has not begun
        return 0


def wait_for_rows(out: Path, number: int, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 60
    while rows_in(out) < number and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.02)


def alive(session: int) -> list[int]:
    """Processes of a session that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def wait_for_end(session: int) -> None:
    end = time.monotonic() + 20
    while alive(session):
        assert time.monotonic() < end, "workers outlive their sweep"
        time.sleep(0.05)


pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


@pytest.fixture
def expected(write, threads, tmp_path):
    found = run_sweep(write(MANY), tmp_path / "expected")
    return [without_timing(row) for row in found.rows]


@pytest.mark.slow
def test_killed_at_random_moments_nothing_is_lost_or_done_twice(write, expected, tmp_path) -> None:
    sweep, out, draw = write(MANY), tmp_path / "out", random.Random(7)
    before = {}
    for _ in range(3):
        process = started(sweep, out)
        wait_for_rows(out, len(before) + draw.randint(1, 3), process)
        time.sleep(draw.uniform(0, 0.1))
        process.kill()
        process.communicate()
        wait_for_end(process.pid)
        rows = {row["point"]: row for row in read_sweep(out).rows}
        assert before.items() <= rows.items()  # with their times: they were not planned again
        before = rows
    process = started(sweep, out)
    process.communicate()
    assert process.returncode == 0
    found = read_sweep(out)
    assert [without_timing(row) for row in found.rows] == expected
    assert all(found.rows[point] == row for point, row in before.items())


@pytest.mark.slow
def test_ctrl_c_ends_at_once_and_keeps_what_is_finished(write, tmp_path) -> None:
    sweep, out = write(MANY), tmp_path / "out"
    process = started(sweep, out)
    wait_for_rows(out, 2, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert f"of 16 points are kept in {out}" in said
    assert 2 <= rows_in(out) < 16
    wait_for_end(process.pid)


@pytest.mark.slow
def test_a_second_sweep_into_the_folder_is_refused_and_the_first_goes_on(write, tmp_path) -> None:
    sweep, out = write(MANY), tmp_path / "out"
    first = started(sweep, out)
    wait_for_rows(out, 1, first)
    os.killpg(first.pid, signal.SIGSTOP)  # or it might end before the second has begun
    _, said = started(sweep, out).communicate(timeout=60)
    assert f"another sweep writes into this folder (process {first.pid}" in said
    os.kill(_a_worker_of(first.pid), signal.SIGKILL)  # and a worker's death costs no point
    os.killpg(first.pid, signal.SIGCONT)
    first.communicate()
    assert first.returncode == 0 and rows_in(out) == 16
    assert read_sweep(out).counts == {"optimal": 16}


def _a_worker_of(session: int) -> int:
    """The youngest process: workers start after the sweep and the fork server."""
    return max(alive(session))
