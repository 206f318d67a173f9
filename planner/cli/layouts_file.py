"""Reading --layouts FILE.csv: one layout a row, layout keys as columns."""

from __future__ import annotations

ALLOWED = "a CSV file whose first line names layout keys, such as tp,pp,mbs"


def read_layouts(path: str) -> list[tuple[int, dict[str, str]]]:
    """Rows of a CSV file with their line numbers; empty cells are left out.

    Raises:
        InputError: unreadable, without rows, or with a row of another length than the head.
    """
    from planner.inputs.csv_rows import read_rows
    from planner.layouts.keys import KEYS

    return read_rows(path, KEYS, "layout key", ALLOWED)
