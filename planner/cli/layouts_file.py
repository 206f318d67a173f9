"""Reading --layouts FILE.csv: one layout a row, layout keys as columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from planner.errors import InputError, nearest_of

ALLOWED = "a CSV file whose first line names layout keys, such as tp,pp,mbs"


def read_layouts(path: str) -> list[tuple[int, dict[str, str]]]:
    """Rows of a CSV file with their line numbers; empty cells are left out.

    Raises:
        InputError: unreadable, without rows, or with a row of another length than the head.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not text in UTF-8"
        raise InputError(f"cannot be read: {reason}", path=path, allowed=ALLOWED) from None
    try:
        rows = list(_rows(csv.reader(io.StringIO(text, newline=""), strict=True), path))
    except csv.Error as error:
        raise InputError(f"not readable as CSV: {error}", path=path, allowed=ALLOWED) from None
    if not rows:
        raise InputError("no layouts under the column names", path=path, allowed=ALLOWED)
    return rows


def _rows(lines: Any, path: str) -> Iterator[tuple[int, dict[str, str]]]:
    head: list[str] | None = None
    for cells in lines:
        number = lines.line_num
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            continue
        if head is None:
            head = _head(cells, path, number)
        elif len(cells) != len(head):
            raise InputError(
                f"{len(cells)} cells under {len(head)} columns", path=path, line=number,
                allowed="as many cells as the first line has (quote a cell that holds a comma)",
            )  # fmt: skip
        else:
            yield number, {key: cell for key, cell in zip(head, cells, strict=True) if cell}
    if head is None:
        raise InputError("the file is empty", path=path, allowed=ALLOWED)


def _head(cells: list[str], path: str, number: int) -> list[str]:
    from planner.search.given import KEYS

    for position, key in enumerate(cells):
        if not key or key in cells[:position]:
            reason = f"the column '{key}' is given twice" if key else "a column has no name"
            raise InputError(reason, path=path, line=number, allowed=ALLOWED)
        if key not in KEYS:
            raise InputError(
                "no such layout key", path=path, line=number, key=key, value=key,
                allowed=", ".join(KEYS), nearest=nearest_of(key, KEYS),
            )  # fmt: skip
    return cells
