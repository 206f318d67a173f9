"""Running a sweep: points are submitted to workers, results are stored as they come."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path

from planner.errors import InputError
from planner.sweep.export import Format, require, write_exports
from planner.sweep.points import Point, Points, read_points
from planner.sweep.results import Sweep, read_sweep
from planner.sweep.rows import failed_cells
from planner.sweep.store import Store, locked
from planner.sweep.tasks import Result, Task
from planner.sweep.version import program_version
from planner.sweep.workers import DaskWorkers, LocalWorkers, WorkerDied, Workers

MOST_DEATHS = 2
"""Workers that may die while they plan a point, and no other, before it counts as failed."""

MOST_DEATHS_IN_A_ROW = 8
"""Workers that may die without a finished point in between before the sweep gives up."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sweep is. reused: finished points that the folder had before."""

    total: int
    done: int
    reused: int
    seconds: float

    @property
    def points_per_second(self) -> float:
        """Points that this run finishes per second."""
        return (self.done - self.reused) / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the rest is done at this rate; None before the first point."""
        rate = self.points_per_second
        return (self.total - self.done) / rate if rate > 0 else None


Tell = Callable[[Progress], None]


def run_sweep(
    sweep: str | Path,
    out: str | Path,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    formats: Iterable[Format] = (),
    tell: Tell = lambda progress: None,
) -> Sweep:
    """Plan every point of a sweep file into a folder; points that it has are not planned again.

    workers: number of processes (by default one per CPU). scheduler: address of a Dask scheduler
    whose workers plan instead. formats: exports that must be written besides CSV and JSON lines.
    tell: called after every finished point.

    Raises:
        InputError: the file is wrong, all points are, the folder is in use by another sweep, or
            the workers cannot start.
    """
    require(formats)
    if workers is not None and not 1 <= workers <= 1024:
        raise InputError(
            f"{workers} is out of range", key="workers", allowed="an integer from 1 to 1024"
        )
    points, folder = read_points(sweep), Path(out)
    # two sweeps in one folder would replace each other's list of points
    with locked(folder):
        store = Store(folder)
        try:
            finished = store.begin(points)
            run = _Run(points, store, len(finished), tell)
            # results of other sweeps count too: the key says all that a result depends on
            todo = [point for point in points.points if point.key not in finished]
            run.all(todo, lambda: _workers(workers, scheduler))
            store.write_view()
        finally:
            store.close()
        results = read_sweep(folder)
        write_exports(results, folder, formats)
    return results


def _workers(number: int | None, scheduler: str | None) -> Workers:
    return LocalWorkers(number) if scheduler is None else DaskWorkers(scheduler)


@dataclass
class _Run:
    """One run of a sweep and its state: points that are with workers, and what has died."""

    points: Points
    store: Store
    reused: int
    tell: Tell
    started: float = field(default_factory=time.perf_counter)
    stored: int = 0
    submitted: dict[Future[Result], Point] = field(default_factory=dict)
    deaths: Counter[int] = field(default_factory=Counter)
    """By point: workers that died while they planned it and no other."""
    deaths_in_a_row: int = 0

    def all(self, todo: Iterable[Point], start: Callable[[], Workers]) -> None:
        """Plan the points; those that are no scenarios are failed rows at once."""
        waiting = deque[Point]()
        for point in todo:
            if point.reason is None:
                waiting.append(point)
            else:
                self._store(point, Result(failed_cells(point.reason), None))
        self._tell()
        if not waiting:
            return
        workers = start()
        # on any error the points that workers plan now are given up
        at_once = True
        try:
            self._plan(waiting, workers)
            at_once = False
        except KeyboardInterrupt:
            self._store_finished(workers)
            raise
        finally:
            workers.stop(at_once)

    def _plan(self, waiting: deque[Point], workers: Workers) -> None:
        # a pool that dies does not say at which point: those it had are planned one at a time
        suspects = deque[Point]()
        slots = workers.slots
        while waiting or suspects or self.submitted:
            while len(self.submitted) < (1 if suspects else slots) and (waiting or suspects):
                self._submit((suspects or waiting).popleft(), workers)
            finished, _ = wait(self.submitted, return_when=FIRST_COMPLETED)
            only_point = len(self.submitted) == 1
            lost, broken = self._collect(finished, workers, only_point)
            if broken:
                self._renew(workers)  # what was submitted is finished, or lost with the pool
                lost += self._collect(list(self.submitted), workers, only_point=False)[0]
            suspects.extend(self._to_retry(lost))
            # a cluster may have gained workers
            slots = max(slots, workers.slots)

    def _submit(self, point: Point, workers: Workers) -> None:
        scenario, settings = self.points.scenarios.at(point.changes), self.points.settings
        task = Task(scenario, settings.top_k, settings.time_limit_seconds, program_version())
        self.submitted[workers.submit(task)] = point

    def _collect(
        self, finished: Iterable[Future[Result]], workers: Workers, only_point: bool
    ) -> tuple[list[Point], bool]:
        """Store results; return the points whose worker died, and whether all workers are lost.

        only_point: whether no other point was with a worker.
        """
        lost, broken = [], False
        for future in finished:
            point = self.submitted[future]
            try:
                self._store(point, workers.result(future))
            except WorkerDied as died:
                lost.append(point)
                # a cluster names the point after several deaths; a pool cannot
                self.deaths[point.number] += MOST_DEATHS if died.only_point else only_point
                broken |= not died.only_point
            del self.submitted[future]
        return lost, broken

    def _to_retry(self, lost: list[Point]) -> list[Point]:
        """The points to plan again; one with too many deaths is stored as failed."""
        for point in lost:
            if self.deaths[point.number] >= MOST_DEATHS:
                scenario = self.points.scenarios.at(point.changes)
                cells = failed_cells(str(WorkerDied(only_point=True)), scenario)
                self._store(point, Result(cells, None), final=False)
        return [point for point in lost if self.deaths[point.number] < MOST_DEATHS]

    def _renew(self, workers: Workers) -> None:
        self.deaths_in_a_row += 1
        if self.deaths_in_a_row > MOST_DEATHS_IN_A_ROW:
            raise InputError(
                "the workers die at once",
                key="--workers",
                allowed="a machine with memory for them; in a script of your own, the call under "
                "`if __name__ == '__main__':`",
            )
        workers.renew()

    def _store(self, point: Point, result: Result, final: bool = True) -> None:
        """Store a result; one that is not final is planned again by the next run."""
        self.store.add(point.key, program_version(), result.cells, result.plan, final)
        self.stored += 1
        if result.plan is not None:
            self.deaths_in_a_row = 0
        self._tell()

    def _store_finished(self, workers: Workers) -> None:
        """Store what was finished when the run was interrupted."""
        for future, point in self.submitted.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                self._store(point, workers.result(future))

    def _tell(self) -> None:
        seconds = time.perf_counter() - self.started
        total = len(self.points.points)
        self.tell(Progress(total, self.reused + self.stored, self.reused, seconds))
