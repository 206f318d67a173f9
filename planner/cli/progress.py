"""How far a search is, on stderr, and Ctrl-C that ends it with the best layout so far.

Nothing is printed in the first second. On a terminal one line changes in place; elsewhere a line is
written after 1, 2, 4, 8 … seconds. The first Ctrl-C asks the search to stop: what it has is shown
with its gap. The second ends the program at once, and so does the first while nothing is searched.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from planner.search.interface import Progress

QUIET_SECONDS = 1.0
REFRESH_SECONDS = 0.2


def progress_line(progress: Progress) -> str:
    """'1,234 layouts, 56 searched in full, 7,890 placements; best 7.05 s, gap 1.2 %'."""
    from math import inf

    from planner.report.text.numbers import percent, seconds

    if not progress.layouts:
        return "enumerating layouts"
    text = (
        f"{progress.layouts:,} layouts, {progress.opened:,} searched in full, "
        f"{progress.placements:,} placements"
    )
    if progress.best_seconds == inf:
        return f"{text}; none fits yet"
    gap = percent(progress.gap_fraction, 2)
    return f"{text}; best {seconds(progress.best_seconds, 4)}, gap {gap}"


def announcer() -> Callable[[str], None] | None:
    """What prints which plan is made next, where many are; None off a terminal."""
    if not sys.stderr.isatty():
        return None
    return lambda text: click.echo(f"planning: {text}", err=True)


class SearchWatch:
    """The watch of a search: shows its progress, and stops it once interrupted.

    Used as a context: inside, the first SIGINT means that the search shall stop.
    """

    def __init__(self) -> None:
        self.interrupted = False
        self._next_seconds = time.monotonic() + QUIET_SECONDS
        self._pause_seconds = QUIET_SECONDS
        self._status: Any = None  # rich's, once a line is shown on a terminal
        self._previous_handler: Any = None

    def __enter__(self) -> SearchWatch:
        # only the main thread may set handlers
        if threading.current_thread() is threading.main_thread():
            self._previous_handler = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore_handler()
        if self._status is not None:
            self._status.stop()
            self._status = None

    def __call__(self, progress: Progress, /) -> bool:
        """Show how far the search is, if it is time; return whether it shall stop."""
        # the search calls often; most calls must cost nothing
        now = time.monotonic()
        if now >= self._next_seconds:
            self._show(progress_line(progress))
            on_terminal = self._status is not None
            self._next_seconds = now + (REFRESH_SECONDS if on_terminal else self._pause_seconds)
            # a log of a long search must stay short
            self._pause_seconds *= 2
        return self.interrupted

    def _show(self, text: str) -> None:
        if not sys.stderr.isatty():
            click.echo(f"planner: searching: {text}", err=True)
            return
        if self._status is None:
            # loaded only for a search that takes longer than a second
            from rich.console import Console

            self._status = Console(stderr=True, highlight=False).status(text)
            self._status.start()
        self._status.update(text)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        # from here on Ctrl-C has its usual effect, so that the second one ends the program
        self.interrupted = True
        self._restore_handler()
        click.echo(
            "planner: stopping with the best so far; interrupt again to end at once", err=True
        )

    def _restore_handler(self) -> None:
        if self._previous_handler is not None:
            signal.signal(signal.SIGINT, self._previous_handler)
            self._previous_handler = None
