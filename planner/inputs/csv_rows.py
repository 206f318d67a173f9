"""Rows of a CSV file whose first line names its columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from planner.errors import InputError, nearest_of
from planner.inputs.text import file_text


def read_rows(
    path: str | Path, columns: Collection[str], noun: str, allowed: str
) -> list[tuple[int, dict[str, str]]]:
    """Return the rows of a file; arguments and result as of `rows_of`.

    Raises:
        InputError: it cannot be read, or as `rows_of`.
    """
    return rows_of(file_text(path, allowed), str(path), columns, noun, allowed)


def rows_of(
    text: str, path: str, columns: Collection[str], noun: str, allowed: str
) -> list[tuple[int, dict[str, str]]]:
    """Return rows as (line number, cells by column name); empty cells are left out.

    Args:
        path: names the text in errors.
        columns: the names that columns may have.
        noun: what a column is, for errors, such as 'layout key'.
        allowed: what such a file is, for errors.

    Raises:
        InputError: not CSV, without rows, an unknown column, or a row whose length is not that of
            the first line.
    """
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        rows = list(_rows(lines, path, columns, noun, allowed))
    except csv.Error as error:
        raise InputError(f"not readable as CSV: {error}", path=path, allowed=allowed) from None
    if not rows:
        raise InputError("no rows under the column names", path=path, allowed=allowed)
    return rows


def _rows(
    lines: Any, path: str, columns: Collection[str], noun: str, allowed: str
) -> Iterator[tuple[int, dict[str, str]]]:
    head: list[str] | None = None
    for cells in lines:
        number = lines.line_num
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            continue
        if head is None:
            head = _head(cells, path, number, columns, noun, allowed)
        elif len(cells) != len(head):
            raise InputError(
                f"{len(cells)} cells under {len(head)} columns", path=path, line=number,
                allowed="as many cells as the first line has (quote a cell that holds a comma)",
            )  # fmt: skip
        else:
            yield number, {key: cell for key, cell in zip(head, cells, strict=True) if cell}
    if head is None:
        raise InputError("the file is empty", path=path, allowed=allowed)


def _head(
    cells: list[str], path: str, number: int, columns: Collection[str], noun: str, allowed: str
) -> list[str]:
    for position, key in enumerate(cells):
        if not key or key in cells[:position]:
            reason = f"the column '{key}' is given twice" if key else "a column has no name"
            raise InputError(reason, path=path, line=number, allowed=allowed)
        if key not in columns:
            raise InputError(
                f"no such {noun}", path=path, line=number, key=key, value=key,
                allowed=", ".join(columns), nearest=nearest_of(key, columns),
            )  # fmt: skip
    return cells
