"""Small sweeps, and workers that are threads of the test: no process starts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from planner.planning.plan import Plan
from planner.planning.solve import plan
from planner.problem.scenario import Scenario, inputs_sha256, scenario_to_document
from planner.sweep import run, tasks
from planner.sweep.tasks import Result, Task, run_task

JOB = """\
model: llama3-8b
topology: dgx-h100
num_accelerators: 8
training: {sequence_length: 4096, global_batch_size: 64, precision: bf16, optimizer: adam}
search: {tp: [1, 2], cp: 1, vp: 1, mbs: 1}
"""
"""A scenario that is planned in a twentieth of a second."""

AXES = """\
base: job.yaml
axes:
  num_accelerators: [8, 16]
  training.sequence_length: [2048, 4096, 8192]
top_k: 1
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a sweep file beside its base."""
    (tmp_path / "job.yaml").write_text(JOB)

    def written(text: str, name: str = "sweep.yaml") -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return written


class Threads:
    """Workers in one thread. `die` names points (by accelerators and length) whose worker dies."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(1)
        self.slots = 2
        self.planned: list[tuple[int, int]] = []
        self.renewed = 0
        self.die: Callable[[tuple[int, int]], BaseException | None] = lambda point: None

    def submit(self, task: Task) -> Future[Result]:
        return self.executor.submit(self._run, task)

    def _run(self, task: Task) -> Result:
        point = task.scenario.num_accelerators, task.scenario.training.sequence_length
        self.planned.append(point)
        error = self.die(point)
        if error is not None:
            raise error
        return run_task(task)

    def result(self, future: Future[Result]) -> Result:
        return future.result()

    def renew(self) -> None:
        self.renewed += 1
        self.executor.shutdown()
        self.executor = ThreadPoolExecutor(1)

    def stop(self, at_once: bool) -> None:
        self.executor.shutdown(cancel_futures=at_once)


_PLANS: dict[tuple[str, int], Plan] = {}


def _remembered(scenario: Scenario, top_k: int, limit: float | None) -> Plan:
    """What `plan` gives, planned once for all tests."""
    key = inputs_sha256(scenario_to_document(scenario)), top_k
    if key not in _PLANS:
        _PLANS[key] = plan(scenario, top_k, limit)
    return _PLANS[key]


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    made = Threads()
    monkeypatch.setattr(tasks, "plan", _remembered)

    def workers(number: int | None, scheduler: str | None) -> Threads:
        made.executor = ThreadPoolExecutor(1)
        return made

    monkeypatch.setattr(run, "_workers", workers)
    return made
