"""Where points are planned: processes of this machine, or workers of a Dask cluster.

Both are `concurrent.futures` executors, which do the scheduling.
"""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import CancelledError, Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any, Protocol

from planner.errors import InputError
from planner.sweep.tasks import Result, Task, run_task, start_worker

CONNECT_SECONDS = 10


class WorkerDied(Exception):  # noqa: N818
    """A worker died while it planned a point; `only_point`: no other point can have caused it."""

    def __init__(self, only_point: bool) -> None:
        super().__init__("the worker died: killed, or out of memory")
        self.only_point = only_point


class Workers(Protocol):
    """What a sweep needs of the workers that plan its points."""

    @property
    def slots(self) -> int:
        """How many points to submit at a time, so that no worker waits."""
        ...

    def submit(self, task: Task) -> Future[Result]:
        """Let a worker plan a point."""
        ...

    def result(self, future: Future[Result]) -> Result:
        """The result of a finished future.

        Raises:
            WorkerDied: its worker died.
            InputError: the workers cannot run the planner, or are lost.
        """
        ...

    def renew(self) -> None:
        """Replace workers that died."""
        ...

    def stop(self, at_once: bool) -> None:
        """End the workers: at once, or after the points that they plan now."""
        ...


def number_of_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def start_method() -> str:
    """How workers start: forked from a server that has loaded the planner and has no threads.

    Never forked from the sweep itself, whose threads (the pool's, the progress bar's) may hold
    locks at that moment. Where there is no fork server, each worker loads the planner anew.
    """
    known = multiprocessing.get_all_start_methods()
    return "forkserver" if "forkserver" in known else "spawn"


class LocalWorkers:
    """Processes of this machine."""

    def __init__(self, number: int | None = None) -> None:
        self.number = number_of_cpus() if number is None else number
        self._context: BaseContext = multiprocessing.get_context(start_method())
        # loaded once, in the server, before workers are forked from it
        self._context.set_forkserver_preload(["planner.sweep.tasks"])
        self._executor, self._lifeline = self._started()

    def _started(self) -> tuple[Executor, Connection]:
        """A pool, and the end of the lifeline whose closing ends its workers."""
        workers_end, own_end = self._context.Pipe(duplex=False)
        executor = ProcessPoolExecutor(
            self.number, mp_context=self._context, initializer=start_worker, initargs=(workers_end,)
        )
        return executor, own_end

    @property
    def slots(self) -> int:
        """For each worker the point that it plans, and the next one."""
        return 2 * self.number

    def submit(self, task: Task) -> Future[Result]:
        """Let a worker plan a point."""
        try:
            return self._executor.submit(run_task, task)
        except BrokenProcessPool as error:  # a worker died since the last result
            broken: Future[Result] = Future()
            broken.set_exception(error)
            return broken

    def result(self, future: Future[Result]) -> Result:
        """The result of a finished future; a pool loses all its points when one worker dies."""
        try:
            return future.result()
        except (BrokenProcessPool, CancelledError):
            raise WorkerDied(only_point=False) from None

    def renew(self) -> None:
        """Start another pool: one that lost a worker accepts no more points."""
        self.stop(at_once=True)
        self._executor, self._lifeline = self._started()

    def stop(self, at_once: bool) -> None:
        """End the workers: at once, or after the points that they plan now."""
        if at_once:
            # workers notice and end, even in the middle of a point
            self._lifeline.close()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._lifeline.close()


class DaskWorkers:
    """Workers of a Dask cluster, which gives the points of a worker that dies to the others."""

    def __init__(self, address: str) -> None:
        distributed = _distributed()
        self.address = address
        try:
            self._client = distributed.Client(address, timeout=CONNECT_SECONDS)
        except (OSError, ValueError, TypeError) as error:
            raise InputError(
                f"no Dask scheduler answers: {error}", key="--scheduler", value=address,
                allowed="the address of a running one, such as tcp://head:8786",
            ) from None  # fmt: skip
        # not pure: a task that is submitted again is planned again
        self._executor: Executor = self._client.get_executor(pure=False)
        self._died = distributed.scheduler.KilledWorker

    @property
    def slots(self) -> int:
        """Some points for each thread of the workers that the cluster has now."""
        try:
            threads: int = sum(self._client.ncores().values())
        except OSError:
            raise self._lost("the scheduler is lost") from None
        return max(4 * threads, 4)

    def submit(self, task: Task) -> Future[Result]:
        """Let a worker plan a point."""
        return self._executor.submit(run_task, task)

    def result(self, future: Future[Result]) -> Result:
        """The result of a finished future."""
        try:
            return future.result()
        except self._died:
            raise WorkerDied(only_point=True) from None
        except InputError:
            raise
        except CancelledError:
            raise self._lost("the scheduler is lost") from None
        except Exception as error:
            raise self._lost(f"{type(error).__name__}: {error}") from None

    def _lost(self, why: str) -> InputError:
        return InputError(
            f"the Dask workers cannot plan: {why}", key="--scheduler", value=self.address,
            allowed="workers in whose environment this version of planner is installed",
        )  # fmt: skip

    def renew(self) -> None:
        """Do nothing: the cluster looks after its workers."""

    def stop(self, at_once: bool) -> None:
        """Leave the cluster; it drops the points that nobody waits for."""
        with suppress(Exception):  # the scheduler may be lost
            self._executor.shutdown(wait=not at_once)
        with suppress(Exception):
            self._client.close(timeout=CONNECT_SECONDS)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise InputError(
            "needs the library distributed", key="--scheduler",
            allowed="pip install 'parallelism-planner[dask]'",
        ) from None  # fmt: skip
    return distributed
