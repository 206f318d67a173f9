"""A sweep's rows as files for other programs: CSV, JSON lines, Parquet."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from planner.errors import InputError
from planner.sweep.results import Sweep

Format = Literal["csv", "jsonl", "parquet"]
FORMATS: tuple[Format, ...] = get_args(Format)


def require(formats: Iterable[Format]) -> None:
    """Refuse formats that are unknown or need a library that is not installed.

    Raises:
        InputError: which format, and what to install.
    """
    for name in formats:
        if name not in FORMATS:
            raise InputError("no such format", value=name, allowed=", ".join(FORMATS))
        if name == "parquet" and not _has_parquet():
            raise InputError(
                "Parquet needs the library pyarrow", key="--format", value=name,
                allowed="pip install 'parallelism-planner[frames]'",
            )  # fmt: skip


def _has_parquet() -> bool:
    return find_spec("pyarrow") is not None


def write_exports(sweep: Sweep, folder: Path, formats: Iterable[Format] = ()) -> list[Path]:
    """Write sweep.csv, sweep.jsonl and, with pyarrow, sweep.parquet; return the paths."""
    written = {"sweep.csv": _csv(sweep), "sweep.jsonl": _json_lines(sweep)}
    if "parquet" in formats or _has_parquet():
        written["sweep.parquet"] = _parquet(sweep)
    return [_replace(folder / name, data) for name, data in written.items()]


def _replace(path: Path, data: bytes) -> Path:
    """Write a file in one step, so that nobody reads half of it."""
    unfinished = path.with_name(f".{path.name}.part")
    unfinished.write_bytes(data)
    os.replace(unfinished, path)  # noqa: PTH105
    return path


def _columns(sweep: Sweep) -> list[str]:
    return list(sweep.rows[0]) if sweep.rows else ["point", "key", *sweep.axes]


def _text(value: Any) -> Any:
    """A value as one cell: lists, mappings and booleans as JSON."""
    return json.dumps(value) if isinstance(value, dict | list | bool) else value


def _csv(sweep: Sweep) -> bytes:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    columns = _columns(sweep)
    writer.writerow(columns)
    writer.writerows([_text(row[name]) for name in columns] for row in sweep.rows)
    return buffer.getvalue().encode()


def _json_lines(sweep: Sweep) -> bytes:
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in sweep.rows).encode()


def _parquet(sweep: Sweep) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {name: [row[name] for row in sweep.rows] for name in _columns(sweep)}
    arrays = {name: _array(pa, values) for name, values in columns.items()}
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table(arrays), buffer)
    data: bytes = buffer.getvalue().to_pybytes()
    return data


def _array(pa: Any, values: list[Any]) -> Any:
    """One column; where an axis has values of several types, their JSON."""
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array([None if value is None else json.dumps(value) for value in values])
