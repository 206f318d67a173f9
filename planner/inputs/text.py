"""Files into text and JSON text into values, with what either may not be refused by name.

A file is a regular one of bounded size in UTF-8; JSON has every key once and finite numbers.
"""

from __future__ import annotations

import json
import math
import stat
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from planner.errors import InputError

MOST_BYTES = 256 * 2**20
MOST_DEPTH = 100
"""Lists and mappings inside each other; no file of ours has ten."""


def file_text(
    path: str | Path,
    allowed: str,
    *,
    shown: str | None = None,
    most_bytes: int = MOST_BYTES,
    lenient: bool = False,
    pipes: bool = False,
) -> str:
    """The text of a file, without a byte order mark.

    shown: the path in messages. lenient: bytes that are no UTF-8 are replaced. pipes: pipes and
    the like are read too, which may wait for their other end.

    Raises:
        InputError: it cannot be read, is no file, too long, or no text in UTF-8.
    """
    name = str(path) if shown is None else shown
    try:
        mode = Path(path).stat().st_mode
        if stat.S_ISDIR(mode):
            _refuse(name, allowed, "cannot be read: Is a directory")
        if not stat.S_ISREG(mode) and not pipes:
            _refuse(name, allowed, "cannot be read: is a pipe or device, not a file")
        with Path(path).open("rb") as file:
            return stream_text(file, allowed, shown=name, most_bytes=most_bytes, lenient=lenient)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if isinstance(error, InputError):
            raise
        _refuse(name, allowed, f"cannot be read: {getattr(error, 'strerror', None) or error}")


def _refuse(name: str, allowed: str, reason: str, **more: Any) -> NoReturn:
    raise InputError(reason, path=name, allowed=allowed, **more) from None


def stream_text(
    stream: BinaryIO,
    allowed: str,
    *,
    shown: str,
    most_bytes: int = MOST_BYTES,
    lenient: bool = False,
) -> str:
    """The text of an open file, as `file_text`.

    Raises:
        InputError: it cannot be read, is too long, or no text in UTF-8.
    """
    try:
        raw = stream.read(most_bytes + 1)
    except OSError as error:
        _refuse(shown, allowed, f"cannot be read: {error.strerror or error}")
    if len(raw) > most_bytes:
        _refuse(shown, "a shorter file", f"is more than {most_bytes} bytes long")
    try:
        return raw.decode("utf-8-sig", "replace" if lenient else "strict")
    except UnicodeDecodeError as error:
        before, byte = raw[: error.start], raw[error.start]
        _refuse(
            shown, "text in UTF-8", f"cannot be read: the byte 0x{byte:02x} is not UTF-8",
            line=before.count(b"\n") + 1, column=error.start - before.rfind(b"\n"),
        )  # fmt: skip


MOST_DIGITS = 18
"""Of a whole number; a count of anything has fewer, and Python reads no more than 4,300."""


def whole(text: str) -> int | None:
    """The whole number that ASCII digits, and nothing else, spell; None where they do not."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else None


def given_text(value: Any) -> str:
    """A layout key's value as it is given: true, 8, 10+11+11."""
    if isinstance(value, tuple):
        return "+".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def counted_runs(numbers: Sequence[int]) -> str:
    """Numbers with repeats counted: '3 + 30×4 + 3'."""
    counted = [(value, len(list(same))) for value, same in groupby(numbers)]
    return " + ".join(f"{n}×{value}" if n > 1 else str(value) for value, n in counted)


def json_value(text: str, path: str, allowed: str, line: int | None = None) -> Any:
    """The value of JSON text; `line` is that of the text in its file, where it is one of many.

    Raises:
        InputError: no JSON, a key given twice, a number that is not finite, or too deep.
    """
    try:
        value = json.loads(text, parse_constant=_constant, object_pairs_hook=_once)
        _refuse_depth(value)
    except json.JSONDecodeError as error:
        raise InputError(
            f"is not JSON: {error.msg}", path=path, line=error.lineno if line is None else line,
            column=error.colno, allowed=allowed,
        ) from None  # fmt: skip
    except InputError as error:
        raise InputError(
            f"is not JSON that can be read: {error.message}",
            path=path, line=line, key=error.key, allowed=allowed,
        ) from None  # fmt: skip
    except (ValueError, RecursionError) as error:  # numbers too long, brackets too deep
        raise InputError(
            f"is not JSON that can be read: {error}", path=path, line=line, allowed=allowed
        ) from None
    return value


def _constant(text: str) -> float:
    return float(text)


def _refuse_infinite(value: Any, key: str | None = None) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{json.dumps(value)} is not a finite number", key=key)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise InputError("the key is given twice", key=key)
        _refuse_infinite(value, key)
        found[key] = value
    return found


def _refuse_depth(value: Any) -> None:
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [
            child
            for part in level if isinstance(part, dict | list)
            for child in (part.values() if isinstance(part, dict) else part)
        ]  # fmt: skip
        for value in level:
            _refuse_infinite(value)
        if not level:
            return
    raise InputError(f"is nested more than {MOST_DEPTH} deep")
