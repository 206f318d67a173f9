"""CSV rows: what is read, and what is refused where."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.inputs.csv_rows import read_rows


def read(tmp_path: Path, text: str) -> list[tuple[int, dict[str, str]]]:
    path = tmp_path / "x.csv"
    path.write_bytes(text.encode())
    return read_rows(path, ("size", "time"), "column", "a table of times")


def test_cells_by_name_with_lines_without_blanks(tmp_path: Path) -> None:
    text = '\ufeff size ,time\r\n\r\n1,"2, or so"\r\n,3\r\n'
    assert read(tmp_path, text) == [(3, {"size": "1", "time": "2, or so"}), (4, {"time": "3"})]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", None, "the file is empty"),
        ("size,time\n", None, "no rows"),
        ("size,tme\n1,2\n", 1, "no such column"),
        ("size,size\n1,2\n", 1, "given twice"),
        ("size,\n1,2\n", 1, "no name"),
        ("size,time\n1,2\n3\n", 3, "1 cells under 2 columns"),
        ('size,time\n"1,2\n', None, "not readable as CSV"),
    ],
)
def test_refusals(tmp_path: Path, text: str, line: int | None, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        read(tmp_path, text)
    assert caught.value.line == line
    assert "a table of times" in str(caught.value) or line is not None


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not UTF-8"):
        read_rows(path, ("size",), "column", "a table")
