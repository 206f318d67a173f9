"""What no input may do: take long, take much memory, open what it was not given."""

from __future__ import annotations

import os
import resource
import signal
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# The planner imports pint with the first quantity that it reads. Where dask is installed pint
# imports it, and dask asks the system for its CPUs in /proc and /sys: no input is behind that.
import pint  # noqa: F401

from planner.inputs.files import data_root

SECONDS = 2.0
"""Processor time that one input may take."""

WAIT = 20.0
"""Time on the clock: a read that waits for what never comes takes no processor time."""

MEGABYTES = 256
"""What the process may grow by over one input, at its peak."""

_allowed: tuple[str, ...] = ()
_opened: list[str] = []


class TooSlow(BaseException):
    """An input took more than SECONDS; no `except Exception` swallows it."""


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not _allowed:
        return
    if event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect"):
        _opened.append(f"{event} {arguments[0]}")
    elif event == "open" and isinstance(arguments[0], str | bytes):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if not path.startswith(_allowed):
            _opened.append(path)


sys.addaudithook(_watch)


def _stop(number: int, frame: object) -> None:
    raise TooSlow(f"more than {SECONDS} s of processor time, or {WAIT} s on the clock")


@contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """Fail unless the block is quick and small and opens files of the folder, the planner and
    Python alone."""
    global _allowed
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _opened.clear()
    python = (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values(), "/dev/null")
    _allowed = tuple(os.path.realpath(p) for p in (folder, data_root(), *python))
    timers = ((signal.ITIMER_PROF, signal.SIGPROF, SECONDS),
              (signal.ITIMER_REAL, signal.SIGALRM, WAIT))  # fmt: skip
    former = [signal.signal(number, _stop) for _, number, _ in timers]
    for timer, _, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(timers, former, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)
        _allowed = ()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < MEGABYTES, f"{grown:.0f} MB"
    assert not _opened, f"opened {_opened}"
