"""What a worker does: plan one point, and end when the sweep does."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import zlib
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait

from planner.errors import InputError, PlannerError
from planner.planning.solve import plan
from planner.problem.scenario import Scenario
from planner.sweep.rows import Cells, cells_of, failed_cells
from planner.sweep.version import program_version


@dataclass(frozen=True, slots=True)
class Task:
    """A point to plan.

    Tasks are sent one by one, so that a finished point is stored at once: a worker takes 0.2 ms to
    read one, and a tenth of a second or more to plan it.
    """

    scenario: Scenario
    top_k: int
    time_limit_seconds: float | None
    program: str


@dataclass(frozen=True, slots=True)
class Result:
    """The cells of a planned point, and its plan's document as compressed JSON."""

    cells: Cells
    plan: bytes | None


def run_task(task: Task) -> Result:
    """Plan a point; if planning fails, the result says why.

    Raises:
        InputError: the worker runs another version of the program than the sweep.
    """
    if task.program != program_version():
        raise InputError(
            f"a worker runs planner {program_version()}, the sweep {task.program}",
            key="--scheduler", allowed="workers with the same planner as the sweep",
        )  # fmt: skip
    started = time.perf_counter()
    try:
        best = plan(task.scenario, task.top_k, task.time_limit_seconds)
    except PlannerError as error:
        return _failed(str(error), task.scenario, started)
    except Exception as error:  # a fault at one point must not cost the others
        return _failed(f"{type(error).__name__}: {error}", task.scenario, started)
    document = packed(best.to_document())
    return Result(cells_of(best, task.scenario, time.perf_counter() - started), document)


def _failed(reason: str, scenario: Scenario, started: float) -> Result:
    return Result(failed_cells(reason, scenario, time.perf_counter() - started), None)


def packed(document: object) -> bytes:
    """A document as compressed JSON."""
    return zlib.compress(json.dumps(document, allow_nan=False).encode())


def unpacked(data: bytes) -> object:
    """The document of compressed JSON."""
    return json.loads(zlib.decompress(data))


def start_worker(lifeline: Connection) -> None:
    """Tie this process to the sweep's: it ends when the other end of the lifeline closes, which the
    sweep does when it stops, and the system when the sweep dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the sweep answers Ctrl-C
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()


def _end_with(lifeline: Connection) -> None:
    wait([lifeline])
    # at once: nothing of this process is needed any more
    os._exit(1)
