"""Measured kernels, read from files: a user's CSV, or parquet files of aiconfigurator-core.

CSV holds matrix products (m × k)·(k × n):

    accelerator,dtype,m,n,k,latency
    h100-sxm-80gb,bf16,4096,8192,8192,672.8 us

`accelerator` is a shipped name or alias, or the path of an accelerator's YAML file; `dtype` one of
DTYPES; `latency` carries its unit. A further column `quantises` (yes or no, no without it) says
that the time includes the quantisation of the m × k inputs, as the package's times do below 16
bits. Of a shape that was measured more than once, the lowest time counts: the best kernel.

The PyPI package aiconfigurator-core (Apache-2.0; `pip install 'parallelism-planner[test-kernels]'`)
has products, attention and experts, measured under serving frameworks, forward kernels only, in
milliseconds:

    systems/data/<system>/gemm/<framework>/<version>/gemm_perf.parquet, and so on
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError, Place, nearest_of
from planner.evidence.shipped_names import accelerator_named
from planner.inputs.csv_rows import read_rows
from planner.inputs.files import resolve
from planner.inputs.text import natural_number
from planner.inputs.units import parse_quantity
from planner.inputs.values import load
from planner.problem.hardware import Accelerator
from planner.problem.precision import Precision

Floats = NDArray[np.float64]

Columns = Mapping[str, NDArray[Any]]
"""Name → values, all of one length."""

PACKAGE = "aiconfigurator-core"
INSTALL = "pip install 'parallelism-planner[test-kernels]'"

SYSTEMS = ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200", "gb300")
"""Folders of the package that are read: those of accelerators that ship."""

DEVICES: Mapping[str, str] = {
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm-80gb",
    "NVIDIA H200": "h200-sxm-141gb",
    "NVIDIA B200": "b200-sxm-180gb",
    "NVIDIA B300 SXM6 AC": "b300",
    "NVIDIA GB200": "gb200",
    "NVIDIA GB300": "gb300",
}
"""Device, as the driver names it → shipped accelerator type."""

PACKAGE_FILES = {"gemm": "gemm_perf", "attention": "context_attention_perf", "moe": "moe_perf"}


@dataclass(frozen=True, slots=True)
class Dtype:
    """How a type of product is costed.

    precision: whose coefficients and peak it has.
    cast_bytes: HBM traffic of quantising its inputs from 16 bits, bytes for each of the m·k.
    """

    precision: Precision
    cast_bytes: float


DTYPES: Mapping[str, Dtype] = {
    "bf16": Dtype("bf16", 0.0),
    "fp16": Dtype("fp16", 0.0),
    # a dynamic scale per tensor: read for the largest magnitude 2, read to cast 2, write 1
    "fp8": Dtype("fp8", 5.0),
    # a scale for each 128 elements: read 2, write 1 and the scales
    "fp8_block": Dtype("fp8", 3.0 + 4 / 128),
    # a scale of a byte for each 16 elements: read 2, write 1/2 and the scales
    "nvfp4": Dtype("fp4", 2.5 + 1 / 16),
}
OTHER_NAMES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "fp4": "nvfp4"}

COLUMNS = ("accelerator", "dtype", "m", "n", "k", "latency")
OPTIONAL = ("quantises",)
ALLOWED = f"a CSV file with the columns {','.join(COLUMNS)}, or {PACKAGE}'s parquet files"
SIZE_LIMIT = 2**31
ANSWERS = {"yes": 1.0, "no": 0.0}


@dataclass(frozen=True, slots=True)
class Latencies:
    """Products of one accelerator type and dtype; arrays of one length, each shape once.

    file: the accelerator's YAML file.
    quantises: 1 where the seconds include the quantisation of the inputs, else 0.
    """

    accelerator: Accelerator
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
        """Other products of the same accelerator and dtype, in the order of `arrays`."""
        m, n, k, quantises, seconds = arrays
        return replace(self, m=m, n=n, k=k, quantises=quantises, seconds=seconds)


def read_latencies(paths: Iterable[str | Path]) -> list[Latencies]:
    """The products of all files, joined by accelerator and dtype; without files the package's.

    Raises:
        InputError: a file cannot be read or holds nonsense, or the package is not installed.
    """
    files = [Path(path) for path in paths]
    if files:
        tables = [table for file in files for table in _read(file)]
    else:
        tables = [
            table for file in package_files("gemm") for table in _of_parquet(file, package_source())
        ]
    groups: dict[tuple[str, str], list[Latencies]] = {}
    for table in tables:
        groups.setdefault((table.accelerator.name, table.dtype), []).append(table)
    return [_joined(tables) for tables in groups.values()]


def _read(path: Path) -> list[Latencies]:
    if path.suffix == ".parquet":
        return _of_parquet(path, path.name)
    return _of_csv(path)


def _joined(tables: Sequence[Latencies]) -> Latencies:
    """Tables of one accelerator and dtype as one, each shape once."""
    arrays = [np.concatenate(columns) for columns in zip(*(t.arrays for t in tables), strict=True)]
    best = lowest_of(arrays[:-1], arrays[-1])
    sources = tuple(dict.fromkeys(source for table in tables for source in table.sources))
    return replace(tables[0].with_arrays([column[best] for column in arrays]), sources=sources)


# ---------------------------------------------------------------- the package


def package_source() -> str:
    """The package, its version and licence, as sources of figures name it."""
    return f"{PACKAGE} {metadata.version(PACKAGE)} (Apache-2.0)"


def package_files(subject: str) -> list[Path]:
    """The package's files of a subject of PACKAGE_FILES, of all SYSTEMS.

    Raises:
        InputError: the package is not installed, or holds no such file.
    """
    spec = find_spec(PACKAGE.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise InputError(
            f"the package {PACKAGE} is not installed",
            key="--package",
            allowed=f"{INSTALL}, or files of measured products",
        )
    data = Path(spec.origin).parent / "systems" / "data"
    pattern = f"{subject}/*/*/{PACKAGE_FILES[subject]}.parquet"
    files = [path for system in SYSTEMS for path in sorted((data / system).glob(pattern))]
    if not files:
        raise InputError(f"no {pattern} in it", path=str(data), allowed=f"{PACKAGE} 0.12.0")
    return files


def read_columns(
    path: Path, names: Sequence[str], absent: Mapping[str, float] | None = None
) -> Columns:
    """Columns of a parquet file: text as arrays of objects, numbers as they are.

    absent: values of columns that a file may lack.

    Raises:
        InputError: pyarrow is missing, the file cannot be read, or lacks a column.
    """
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise InputError(
            "parquet files are read with pyarrow, which is not installed",
            path=str(path),
            allowed=INSTALL,
        ) from None
    try:
        known = parquet.read_schema(path).names
        filled = {name: value for name, value in (absent or {}).items() if name not in known}
        missing = [name for name in names if name not in known and name not in filled]
        if missing:
            raise InputError(
                "the file has no such column",
                path=str(path),
                key=missing[0],
                allowed=f"a parquet file with the columns {', '.join(names)}",
            )
        table = parquet.read_table(path, columns=[name for name in names if name in known])
    except (OSError, ArrowException) as error:
        raise InputError(
            f"cannot be read as parquet: {error}", path=str(path), allowed=f"a file of {PACKAGE}"
        ) from None
    return {
        name: np.full(table.num_rows, filled[name])
        if name in filled
        else _array(table.column(name))
        for name in names
    }


def _array(column: Any) -> NDArray[Any]:
    """An Arrow column as numpy; text by its distinct words, as millions of rows have few."""
    chunk = column.combine_chunks()
    if str(chunk.type) not in ("string", "large_string"):
        return np.asarray(chunk.to_numpy(zero_copy_only=False))
    coded = chunk.dictionary_encode()
    words = np.array(coded.dictionary.to_pylist(), dtype=object)
    return np.asarray(words[coded.indices.to_numpy(zero_copy_only=False)])


def latency_seconds(columns: Columns, path: Path) -> Floats:
    """The package's latencies in seconds, shape (rows,).

    Raises:
        InputError: one is not above zero, or not finite.
    """
    milliseconds = columns["latency"].astype(np.float64)
    wrong = np.flatnonzero(~(np.isfinite(milliseconds) & (milliseconds > 0)))
    if len(wrong):
        raise InputError(
            f"{milliseconds[wrong[0]]} ms is not a time",
            path=str(path),
            line=int(wrong[0]) + 1,
            key="latency",
            value=float(milliseconds[wrong[0]]),
            allowed="finite numbers above 0",
        )
    return milliseconds * 1e-3


def lowest_of(keys: Sequence[NDArray[Any]], times: Floats) -> NDArray[np.intp]:
    """Positions of the lowest time of each distinct row of the keys, in rising order of keys."""
    codes = [np.unique(key, return_inverse=True)[1] for key in keys]
    order = np.lexsort((times, *reversed(codes)))
    is_first = np.zeros(len(order), dtype=bool)
    is_first[:1] = True
    for code in codes:
        is_first[1:] |= np.diff(code[order]) != 0
    return order[is_first]


def _of_parquet(path: Path, source: str) -> list[Latencies]:
    columns = read_columns(path, ("device", "gemm_dtype", "m", "n", "k", "latency"))
    seconds = latency_seconds(columns, path)
    dtypes = np.array(
        [OTHER_NAMES.get(str(d), str(d)) for d in columns["gemm_dtype"]], dtype=object
    )
    tables = []
    for device in dict.fromkeys(columns["device"]):
        accelerator, file = _of_device(str(device), str(path))
        for dtype in (name for name in DTYPES if name in set(dtypes)):
            mask = (columns["device"] == device) & (dtypes == dtype)
            # what is measured is the layer of a framework, which casts 16-bit inputs itself
            quantises = np.full(np.count_nonzero(mask), float(DTYPES[dtype].cast_bytes > 0))
            m, n, k = (columns[name][mask].astype(np.float64) for name in ("m", "n", "k"))
            tables.append(
                Latencies(accelerator, file, dtype, m, n, k, quantises, seconds[mask], (source,))
            )
    return tables


def _of_device(device: str, path: str) -> tuple[Accelerator, Path]:
    name = DEVICES.get(device)
    if name is None:
        raise InputError(
            f"no shipped accelerator is a '{device}'",
            path=path,
            key="device",
            value=device,
            allowed=", ".join(DEVICES),
        )
    return _loaded(name)


def _loaded(name: str) -> tuple[Accelerator, Path]:
    return load(name, "accelerator", Accelerator), resolve("accelerator", name)


# ---------------------------------------------------------------- CSV


def _of_csv(path: Path) -> list[Latencies]:
    accelerators: dict[str, tuple[Accelerator, Path]] = {}
    rows_of: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for number, cells in read_rows(path, COLUMNS + OPTIONAL, "column", ALLOWED):
        where: dict[str, Any] = {"path": str(path), "line": number}
        missing = [name for name in COLUMNS if name not in cells]
        if missing:
            raise InputError("no value", **where, key=missing[0], allowed=ALLOWED)
        name = cells["accelerator"]
        if name not in accelerators:
            accelerators[name] = _accelerator(name, where)
        dtype = _dtype(cells["dtype"], accelerators[name][0], where)
        sizes = [_size(cells[key], key, where) for key in ("m", "n", "k")]
        quantises = _answer(cells.get("quantises", "no"), where)
        seconds = _seconds(cells["latency"], where)
        rows_of.setdefault((name, dtype), []).append((*sizes, quantises, seconds))
    tables = []
    for (name, dtype), rows in rows_of.items():
        m, n, k, quantises, seconds = np.array(rows, dtype=np.float64).T
        tables.append(
            Latencies(*accelerators[name], dtype, m, n, k, quantises, seconds, (path.name,))
        )
    return tables


def _accelerator(name: str, where: Mapping[str, Any]) -> tuple[Accelerator, Path]:
    shipped = accelerator_named(name)
    try:
        return _loaded(name if shipped is None else shipped.name)
    except InputError as error:
        raise error.located(Place(where["path"], where["line"], key="accelerator")) from None


def _dtype(text: str, accelerator: Accelerator, where: Mapping[str, Any]) -> str:
    name = OTHER_NAMES.get(text.lower(), text.lower())
    if name not in DTYPES:
        raise InputError(
            f"unknown type '{text}'",
            **where,
            key="dtype",
            value=text,
            allowed=", ".join(DTYPES),
            nearest=nearest_of(text, DTYPES),
        )
    if DTYPES[name].precision not in accelerator.peak_flops:
        raise InputError(
            f"{accelerator.name} has no {DTYPES[name].precision} matmuls",
            **where,
            key="dtype",
            value=text,
            allowed=", ".join(accelerator.peak_flops),
        )
    return name


def _size(text: str, key: str, where: Mapping[str, Any]) -> float:
    if not 1 <= (natural_number(text) or 0) < SIZE_LIMIT:
        raise InputError(
            f"'{text}' is not a size",
            **where,
            key=key,
            value=text,
            allowed=f"whole numbers from 1 to {SIZE_LIMIT - 1:,}",
        )
    return float(text)


def _answer(text: str, where: Mapping[str, Any]) -> float:
    if text.lower() not in ANSWERS:
        raise InputError(
            f"'{text}' is no answer",
            **where,
            key="quantises",
            value=text,
            allowed=", ".join(ANSWERS),
        )
    return ANSWERS[text.lower()]


def _seconds(text: str, where: Mapping[str, Any]) -> float:
    try:
        seconds = parse_quantity(text, "s")
    except InputError as error:
        raise error.located(Place(where["path"], where["line"], key="latency")) from None
    if seconds <= 0:
        raise InputError(
            f"'{text}' is not above zero",
            **where,
            key="latency",
            value=text,
            allowed="a time above 0 such as 672.8 us",
        )
    return seconds
