"""Running a sweep: points out, results in, each kept as it comes."""

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
from planner.sweep.read import Sweep, read_sweep
from planner.sweep.rows import failed_cells
from planner.sweep.store import Store, locked
from planner.sweep.version import program_version
from planner.sweep.work import Result, Task
from planner.sweep.workers import DaskWorkers, LocalWorkers, WorkerDied, Workers

MOST_DEATHS = 2
"""Workers that a point may take with it, each alone with it, before it counts as failed."""

MOST_DEATHS_ON_END = 8
"""Workers that may die with no point finished between before the sweep gives up."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sweep is. reused: points that the folder had before."""

    total: int
    done: int
    reused: int
    seconds: float

    @property
    def points_per_second(self) -> float:
        """Points that this run finished a second."""
        return (self.done - self.reused) / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the rest is done at this rate."""
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
    """Plan every point of a sweep file into a folder; points that it holds are not planned again.

    workers: processes (the CPUs there are unless given). scheduler: address of a Dask scheduler
    whose workers plan instead. formats: exports that must be written besides CSV and JSON lines.

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
    with locked(folder):
        store = Store(folder)
        try:
            finished = store.begin(points)
            run = _Run(points, store, len(finished), tell)
            todo = [point for point in points.points if point.key not in finished]
            run.all(todo, lambda: _workers(workers, scheduler))
            store.write_view()
        finally:
            store.close()
        found = read_sweep(folder)
        write_exports(found, folder, formats)
    return found


def _workers(number: int | None, scheduler: str | None) -> Workers:
    return LocalWorkers(number) if scheduler is None else DaskWorkers(scheduler)


@dataclass
class _Run:
    """One run: what is out, what is back."""

    points: Points
    store: Store
    reused: int
    tell: Tell
    started: float = field(default_factory=time.perf_counter)
    kept: int = 0
    out: dict[Future[Result], Point] = field(default_factory=dict)
    deaths: Counter[int] = field(default_factory=Counter)  # by point, of workers alone with it
    deaths_on_end: int = 0

    def all(self, todo: Iterable[Point], start: Callable[[], Workers]) -> None:
        """Plan the points; those that are no scenario are failed rows at once."""
        rest = deque[Point]()
        for point in todo:
            if point.reason is None:
                rest.append(point)
            else:
                self._keep(point, Result(failed_cells(point.reason), None))
        self._tell()
        if not rest:
            return
        workers = start()
        at_once = True
        try:
            self._plan(rest, workers)
            at_once = False
        except KeyboardInterrupt:
            self._keep_what_is_back(workers)
            raise
        finally:
            workers.stop(at_once)

    def _plan(self, rest: deque[Point], workers: Workers) -> None:
        suspects = deque[Point]()  # out when a pool died: planned one at a time
        slots = workers.slots
        while rest or suspects or self.out:
            while len(self.out) < (1 if suspects else slots) and (rest or suspects):
                self._hand_out((suspects or rest).popleft(), workers)
            back, _ = wait(self.out, return_when=FIRST_COMPLETED)
            lost, broken = self._take(back, workers, alone=len(self.out) == 1)
            if broken:
                self._renew(workers)  # what was out is back, or lost with the others
                lost += self._take(list(self.out), workers, alone=False)[0]
            suspects.extend(self._suspected(lost))
            slots = max(slots, workers.slots)

    def _take(
        self, back: Iterable[Future[Result]], workers: Workers, alone: bool
    ) -> tuple[list[Point], bool]:
        """Keep what is back; the points that lost their worker, and whether all are lost."""
        lost, broken = [], False
        for future in back:
            point = self.out[future]
            try:
                self._keep(point, workers.result(future))
            except WorkerDied as died:
                lost.append(point)
                self.deaths[point.number] += MOST_DEATHS if died.alone else alone
                broken |= not died.alone
            del self.out[future]
        return lost, broken

    def _hand_out(self, point: Point, workers: Workers) -> None:
        scenario, settings = self.points.scenarios.at(point.changes), self.points.settings
        task = Task(scenario, settings.top_k, settings.time_limit_seconds, program_version())
        self.out[workers.submit(task)] = point

    def _suspected(self, lost: list[Point]) -> list[Point]:
        """The points to try again; one that took its workers with it has failed."""
        for point in lost:
            if self.deaths[point.number] >= MOST_DEATHS:
                scenario = self.points.scenarios.at(point.changes)
                self._keep(
                    point, Result(failed_cells(str(WorkerDied(True)), scenario), None), False
                )
        return [point for point in lost if self.deaths[point.number] < MOST_DEATHS]

    def _renew(self, workers: Workers) -> None:
        self.deaths_on_end += 1
        if self.deaths_on_end > MOST_DEATHS_ON_END:
            raise InputError(
                "the workers die at once",
                key="--workers",
                allowed="a machine with memory for them; in a script of your own, the call under "
                "`if __name__ == '__main__':`",
            )
        workers.renew()

    def _keep(self, point: Point, result: Result, final: bool = True) -> None:
        self.store.add(point.key, program_version(), result.cells, result.plan, final)
        self.kept += 1
        if result.plan is not None:
            self.deaths_on_end = 0
        self._tell()

    def _keep_what_is_back(self, workers: Workers) -> None:
        for future, point in self.out.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                self._keep(point, workers.result(future))

    def _tell(self) -> None:
        done = self.reused + self.kept
        seconds = time.perf_counter() - self.started
        total = len(self.points.points)
        self.tell(Progress(total, done, self.reused, seconds))
