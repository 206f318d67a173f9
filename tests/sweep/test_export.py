"""Exports hold the rows, read back by other programs."""

from __future__ import annotations

import csv
import json
import sys

import pytest

from planner.errors import InputError
from planner.sweep import export, run_sweep
from tests.sweep.conftest import AXES

MIXED = "base: job.yaml\naxes: {search.tp: [1, [1, 2]]}\ntop_k: 1\n"


@pytest.fixture
def found(write, threads, tmp_path):
    return run_sweep(write(MIXED), tmp_path / "out")


def test_json_lines_are_the_rows(found) -> None:
    lines = (found.folder / "sweep.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == found.rows


def test_csv_is_the_rows(found) -> None:
    with (found.folder / "sweep.csv").open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == list(found.rows[0])
    for row, expected in zip(rows, found.rows, strict=True):
        for text, value in zip(row, expected.values(), strict=True):
            if isinstance(value, str) or value is None:
                assert text == (value or "")
            else:
                assert json.loads(text) == value


def test_parquet_is_the_rows(found) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(found.folder / "sweep.parquet").to_pylist()
    assert [row.pop("search.tp") for row in table] == ["1", "[1, 2]"]  # of two kinds: JSON
    assert table == [{k: v for k, v in row.items() if k != "search.tp"} for row in found.rows]


def test_a_frame_is_the_rows(found) -> None:
    pytest.importorskip("pandas")
    frame = found.frame()
    assert list(frame.columns) == list(found.rows[0])
    assert frame["step_seconds"].tolist() == [row["step_seconds"] for row in found.rows]


def test_libraries_that_are_missing_are_named(write, threads, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(export, "find_spec", lambda name: None)
    out = tmp_path / "plain"
    with pytest.raises(InputError, match="needs the library pyarrow"):
        run_sweep(write(AXES), out, formats=("parquet",))
    assert not out.exists()  # before the sweep
    found = run_sweep(write(MIXED), out, formats=("csv",))
    assert sorted(path.name for path in out.glob("sweep.*")) == [
        "sweep.csv", "sweep.jsonl", "sweep.lock", "sweep.sqlite",
    ]  # fmt: skip
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="needs the library pandas"):
        found.frame()
