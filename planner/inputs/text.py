"""Text out of files, which are regular ones of bounded size in UTF-8, and numbers out of text."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

from planner.errors import InputError, Place

MAX_FILE_BYTES = 256 * 2**20
"""Of any file, such as measurements, or a plan with its inventory."""

MAX_DOCUMENT_BYTES = 4 * 2**20
"""Of a file that people write, such as a scenario or a model."""

MAX_DIGITS = 18
"""Of a whole number in text: counts of anything have fewer, and Python reads at most 4,300."""


def file_text(
    path: str | Path,
    allowed: str,
    *,
    shown: str | None = None,
    max_bytes: int = MAX_FILE_BYTES,
    lenient: bool = False,
    pipes: bool = False,
) -> str:
    """Return the text of a file, without a byte order mark.

    Args:
        allowed: what the file should be, for errors.
        shown: the path in messages, if not `path`.
        lenient: whether bytes that are not UTF-8 are replaced instead of refused.
        pipes: whether pipes and devices are read too, which may wait for their other end.

    Raises:
        InputError: it cannot be read, is not a file, is too long, or is not text in UTF-8.
    """
    place = Place(str(path) if shown is None else shown)
    try:
        mode = Path(path).stat().st_mode
        if stat.S_ISDIR(mode):
            raise place.error("cannot be read: Is a directory", allowed=allowed)
        if not stat.S_ISREG(mode) and not pipes:
            raise place.error("cannot be read: is a pipe or device, not a file", allowed=allowed)
        with Path(path).open("rb") as file:
            return stream_text(
                file, allowed, shown=str(place), max_bytes=max_bytes, lenient=lenient
            )
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or error
        raise place.error(f"cannot be read: {reason}", allowed=allowed) from None


def stream_text(
    stream: BinaryIO,
    allowed: str,
    *,
    shown: str,
    max_bytes: int = MAX_FILE_BYTES,
    lenient: bool = False,
) -> str:
    """Return the text of an open file; arguments as of `file_text`.

    Raises:
        InputError: it cannot be read, is too long, or is not text in UTF-8.
    """
    try:
        raw = stream.read(max_bytes + 1)
    except OSError as error:
        reason = error.strerror or error
        raise Place(shown).error(f"cannot be read: {reason}", allowed=allowed) from None
    if len(raw) > max_bytes:
        raise Place(shown).error(f"is more than {max_bytes} bytes long", allowed="a shorter file")
    try:
        return raw.decode("utf-8-sig", "replace" if lenient else "strict")
    except UnicodeDecodeError as error:
        before, byte = raw[: error.start], raw[error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise Place(shown, line, column).error(
            f"cannot be read: the byte 0x{byte:02x} is not UTF-8", allowed="text in UTF-8"
        ) from None


def natural_number(text: str) -> int | None:
    """Return the whole number that ASCII digits spell; None for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None


def given_text(value: Any) -> str:
    """Return a layout key's value as it is given to `--layout`: 'true', '8', '10+11+11'."""
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def counted_runs(numbers: Sequence[int]) -> str:
    """Return numbers in words, with repeats counted: '3 + 30×4 + 3'."""
    counted = [(value, len(list(same))) for value, same in groupby(numbers)]
    return " + ".join(f"{n}×{value}" if n > 1 else str(value) for value, n in counted)
