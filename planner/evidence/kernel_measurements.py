"""Measured matrix products (m × k)·(k × n): a user's CSV, or parquet files of the package.

    accelerator,dtype,m,n,k,latency
    h100-sxm-80gb,bf16,4096,8192,8192,672.8 us

`accelerator` is a shipped name or alias, or the path of an accelerator's YAML file; `dtype` one of
DTYPES; `latency` carries its unit. A further column `quantises` (yes or no, no without it) says
that the time holds the quantisation of the m × k inputs too, as the package's do below 16 bits.
Of a shape that was measured more than once, the least time counts: the best kernel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError, nearest_of
from planner.evidence import kernel_package as package
from planner.evidence.shipped_names import accelerator_named
from planner.inputs.csv_rows import read_rows
from planner.inputs.files import load, resolve
from planner.inputs.text import whole
from planner.inputs.units import parse_quantity
from planner.problem.hardware import Accelerator, Precision

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Dtype:
    """How a type of product is costed.

    cast_bytes: HBM traffic of quantising its inputs from 16 bits, bytes for each of the m·k.
    """

    precision: Precision
    cast_bytes: float


DTYPES: Mapping[str, Dtype] = {
    "bf16": Dtype("bf16", 0.0),
    "fp16": Dtype("fp16", 0.0),
    # a dynamic scale per tensor: read for the largest magnitude 2, read again 2, write 1
    "fp8": Dtype("fp8", 5.0),
    # a scale for each 128 elements: read 2, write 1 and the scales
    "fp8_block": Dtype("fp8", 3.0 + 4 / 128),
    # a scale of a byte for each 16 elements: read 2, write 1/2 and the scales
    "nvfp4": Dtype("fp4", 2.5 + 1 / 16),
}
OTHER_NAMES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "fp4": "nvfp4"}

COLUMNS = ("accelerator", "dtype", "m", "n", "k", "latency")
OPTIONAL = ("quantises",)
ALLOWED = f"a CSV file with the columns {','.join(COLUMNS)}, or {package.PACKAGE}'s parquet files"
MOST = 2**31
ANSWERS = {"yes": 1.0, "no": 0.0}


@dataclass(frozen=True, slots=True)
class Latencies:
    """Products of one accelerator and type; arrays of one length, each shape once.

    file: the accelerator's YAML file.
    quantises: 1 where the seconds hold the quantisation of the inputs, else 0.
    """

    part: Accelerator
    file: Path
    dtype: str
    m: Floats
    n: Floats
    k: Floats
    quantises: Floats
    seconds: Floats
    sources: tuple[str, ...]

    def where(self, mask: NDArray[np.bool_]) -> Latencies:
        """The shapes of a mask."""
        return self.with_arrays([column[mask] for column in self.arrays])

    @property
    def arrays(self) -> tuple[Floats, ...]:
        """m, n, k, quantises and seconds."""
        return self.m, self.n, self.k, self.quantises, self.seconds

    def with_arrays(self, arrays: Sequence[Floats]) -> Latencies:
        """Other products of the same part and type, in the order of `arrays`."""
        m, n, k, quantises, seconds = arrays
        return Latencies(
            self.part, self.file, self.dtype, m, n, k, quantises, seconds, self.sources
        )


def read_latencies(paths: Iterable[str | Path]) -> list[Latencies]:
    """The products of all files, joined by accelerator and type; without files the package's.

    Raises:
        InputError: a file cannot be read or holds nonsense, or the package is not installed.
    """
    files = [Path(path) for path in paths]
    if files:
        found = [table for file in files for table in _read(file)]
    else:
        found = [
            table
            for file in package.package_files("gemm")
            for table in _of_parquet(file, package.source())
        ]
    groups: dict[tuple[str, str], list[Latencies]] = {}
    for table in found:
        groups.setdefault((table.part.name, table.dtype), []).append(table)
    return [_joined(tables) for tables in groups.values()]


def _read(path: Path) -> list[Latencies]:
    if path.suffix == ".parquet":
        return _of_parquet(path, path.name)
    return _of_csv(path)


def _joined(tables: Sequence[Latencies]) -> Latencies:
    arrays = [np.concatenate(columns) for columns in zip(*(t.arrays for t in tables), strict=True)]
    best = package.least_of(arrays[:-1], arrays[-1])
    sources = tuple(dict.fromkeys(source for table in tables for source in table.sources))
    return replace(tables[0].with_arrays([column[best] for column in arrays]), sources=sources)


# ---------------------------------------------------------------- the package


def _of_parquet(path: Path, source: str) -> list[Latencies]:
    columns = package.read_columns(path, ("device", "gemm_dtype", "m", "n", "k", "latency"))
    seconds = package.seconds(columns, path)
    kinds = np.array([OTHER_NAMES.get(str(d), str(d)) for d in columns["gemm_dtype"]], dtype=object)
    found = []
    for device in dict.fromkeys(columns["device"]):
        part, file = _part_of(str(device), str(path))
        for dtype in (name for name in DTYPES if name in set(kinds)):
            mask = (columns["device"] == device) & (kinds == dtype)
            quantises = float(DTYPES[dtype].cast_bytes > 0)
            m, n, k = (columns[name][mask].astype(np.float64) for name in ("m", "n", "k"))
            times = seconds[mask]
            found.append(
                Latencies(part, file, dtype, m, n, k, np.full(len(m), quantises), times, (source,))
            )
    return found


def _part_of(device: str, path: str) -> tuple[Accelerator, Path]:
    name = package.PARTS.get(device)
    if name is None:
        raise InputError(
            f"no shipped accelerator is a '{device}'", path=path, key="device", value=device,
            allowed=", ".join(package.PARTS),
        )  # fmt: skip
    return _loaded(name)


def _loaded(name: str) -> tuple[Accelerator, Path]:
    return load(name, "accelerator", Accelerator), resolve("accelerator", name)


# ---------------------------------------------------------------- CSV


def _of_csv(path: Path) -> list[Latencies]:
    rows = read_rows(path, COLUMNS + OPTIONAL, "column", ALLOWED)
    parts: dict[str, tuple[Accelerator, Path]] = {}
    tables: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for number, cells in rows:
        where: dict[str, Any] = {"path": str(path), "line": number}
        missing = [name for name in COLUMNS if name not in cells]
        if missing:
            raise InputError("no value", **where, key=missing[0], allowed=ALLOWED)
        name = cells["accelerator"]
        if name not in parts:
            parts[name] = _accelerator(name, where)
        dtype = _dtype(cells["dtype"], parts[name][0], where)
        sizes = [_size(cells[key], key, where) for key in ("m", "n", "k")]
        quantises = _answer(cells.get("quantises", "no"), where)
        time = _time(cells["latency"], where)
        tables.setdefault((name, dtype), []).append((*sizes, quantises, time))
    found = []
    for (name, dtype), table in tables.items():
        m, n, k, quantises, seconds = np.array(table, dtype=np.float64).T
        found.append(Latencies(*parts[name], dtype, m, n, k, quantises, seconds, (path.name,)))
    return found


def _accelerator(name: str, where: Mapping[str, Any]) -> tuple[Accelerator, Path]:
    shipped = accelerator_named(name)
    try:
        return _loaded(name if shipped is None else shipped.name)
    except InputError as error:
        raise error.located(where["path"], where["line"], None, "accelerator") from None


def _dtype(text: str, part: Accelerator, where: Mapping[str, Any]) -> str:
    name = OTHER_NAMES.get(text.lower(), text.lower())
    if name not in DTYPES:
        raise InputError(
            f"unknown type '{text}'", **where, key="dtype", value=text,
            allowed=", ".join(DTYPES), nearest=nearest_of(text, DTYPES),
        )  # fmt: skip
    if DTYPES[name].precision not in part.peak_flops:
        raise InputError(
            f"{part.name} has no {DTYPES[name].precision} matmuls", **where, key="dtype",
            value=text, allowed=", ".join(part.peak_flops),
        )  # fmt: skip
    return name


def _size(text: str, key: str, where: Mapping[str, Any]) -> float:
    if not 1 <= (whole(text) or 0) < MOST:
        raise InputError(
            f"'{text}' is not a size", **where, key=key, value=text,
            allowed=f"whole numbers from 1 to {MOST - 1:,}",
        )  # fmt: skip
    return float(text)


def _answer(text: str, where: Mapping[str, Any]) -> float:
    if text.lower() not in ANSWERS:
        raise InputError(
            f"'{text}' is no answer", **where, key="quantises", value=text,
            allowed=", ".join(ANSWERS),
        )  # fmt: skip
    return ANSWERS[text.lower()]


def _time(text: str, where: Mapping[str, Any]) -> float:
    try:
        seconds = parse_quantity(text, "s")
    except InputError as error:
        raise error.located(where["path"], where["line"], None, "latency") from None
    if seconds <= 0:
        raise InputError(
            f"'{text}' is not above zero", **where, key="latency", value=text,
            allowed="a time above 0 such as 672.8 us",
        )  # fmt: skip
    return seconds
