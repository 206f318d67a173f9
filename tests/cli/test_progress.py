"""Progress on stderr, interrupts, and the same bytes in every process."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner

from planner.cli import main, progress
from planner.search.interface import Progress

SMALL = "llama3-8b-h100x8"
SEEN = Progress(1234, 5, 678, 7.05, 7.0)


def test_what_is_told() -> None:
    assert progress.progress_line(SEEN) == (
        "1,234 layouts, 5 searched in full, 678 placements; best 7.050 s, gap 0.71 %"
    )
    assert "none fits yet" in progress.progress_line(Progress(1, 0, 0, float("inf"), 0.0))
    assert progress.progress_line(Progress(0, 0, 0, float("inf"), 0.0)) == "enumerating layouts"


def test_a_quick_search_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.SearchWatch() as watch:
        assert not watch(SEEN)
    assert capsys.readouterr().err == ""


def test_a_pipe_gets_lines_at_growing_distances(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.SearchWatch() as watch:
        for tenth in range(100):
            now[0] = tenth / 10
            watch(SEEN)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4  # after 1, 2, 4 and 8 seconds
    assert all(line.startswith("planner: searching: 1,234 layouts") for line in lines)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_told_what_is_planned_and_a_pipe_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for stream, told in ((Terminal(), "planning: twice the network\n"), (io.StringIO(), "")):
        monkeypatch.setattr(sys, "stderr", stream)
        if (say := progress.announcer()) is not None:
            say("twice the network")
        assert stream.getvalue() == told


def test_a_terminal_gets_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1.0)
    with progress.SearchWatch() as watch:
        watch(SEEN)
    assert "1,234 layouts" in sys.stderr.getvalue()  # type: ignore[attr-defined]


def interrupting(monkeypatch: pytest.MonkeyPatch, times: int) -> Any:
    """Run `plan` with Ctrl-C pressed so often while it searches."""
    left = [times]

    def pressed(known: Progress) -> str:
        while left[0]:
            left[0] -= 1
            signal.raise_signal(signal.SIGINT)
        return "text"

    monkeypatch.setattr(progress, "QUIET_SECONDS", -1.0)
    monkeypatch.setattr(progress, "progress_line", pressed)
    # what is started in the background has SIGINT ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return CliRunner().invoke(main, ["plan", SMALL, "--json"])
    finally:
        signal.signal(signal.SIGINT, before)


def test_one_interrupt_gives_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    result = interrupting(monkeypatch, 1)
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["status"] == "feasible" and 0 < document["gap_fraction"] < 1
    assert document["bound_seconds"] <= document["objective_seconds"]
    assert "stopping with the best so far" in result.stderr
    assert signal.getsignal(signal.SIGINT) is before


def test_two_interrupts_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    result = interrupting(monkeypatch, 2)
    assert result.exit_code == 130 and result.stdout == ""


COMMANDS = (
    ("plan", SMALL, "--json", "--top", "20"),
    (
        "plan",
        "mixtral-8x7b-h100x64",
        "--json",
        "--set",
        "search.tp=[1,2]",
        "--set",
        "search.pp=[1,4]",
        "--set",
        "search.mbs=1",
    ),
    ("plan", SMALL, "--json", "--set", "search.tp=3"),
    ("explain", SMALL, "--why-not", "tp=3,pp=2", "--json"),
    ("explain", SMALL, "--why-not", "tp=4", "--json"),
)
RUN_ALL = """
import json, sys
from click.testing import CliRunner
from planner.cli import main
for command in json.loads(sys.argv[1]):
    print(CliRunner().invoke(main, command).stdout)
"""


@pytest.mark.slow
def test_the_same_input_gives_the_same_bytes_in_every_process() -> None:
    """Whatever the hash seed; only the seconds that the search took differ."""
    found = []
    for seed in ("1", "4321"):
        done = subprocess.run(
            [sys.executable, "-c", RUN_ALL, json.dumps(COMMANDS)],
            env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        lines = done.stdout.splitlines()
        spent = ('"seconds": ', '"cpu_seconds": ')
        found.append([line for line in lines if not line.strip().startswith(spent)])
    assert found[0] == found[1]
    assert sum('"schema_version"' in line for line in found[0]) >= len(COMMANDS)
