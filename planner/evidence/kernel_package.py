"""Measured kernels of the PyPI package aiconfigurator-core (Apache-2.0): columns of parquet files.

    systems/data/<system>/gemm/<framework>/<version>/gemm_perf.parquet, and so on

Optional: `pip install 'parallelism-planner[test-kernels]'`. The times are of serving frameworks,
forward kernels only, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.errors import InputError

PACKAGE = "aiconfigurator-core"
INSTALL = "pip install 'parallelism-planner[test-kernels]'"

SYSTEMS = ("a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm", "gb200", "gb300")
"""Folders of the package that are read: those of parts that ship."""

PARTS: Mapping[str, str] = {
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm-80gb",
    "NVIDIA H200": "h200-sxm-141gb",
    "NVIDIA B200": "b200-sxm-180gb",
    "NVIDIA B300 SXM6 AC": "b300",
    "NVIDIA GB200": "gb200",
    "NVIDIA GB300": "gb300",
}
"""Device, as the driver names it → shipped part."""

FILES = {"gemm": "gemm_perf", "attention": "context_attention_perf", "moe": "moe_perf"}

Columns = Mapping[str, NDArray[Any]]


def source() -> str:
    """The package, its version and licence, as sources of figures name it."""
    return f"{PACKAGE} {metadata.version(PACKAGE)} (Apache-2.0)"


def package_files(kind: str) -> list[Path]:
    """The package's files of a kind: 'gemm', 'attention' or 'moe', of all SYSTEMS.

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
    pattern = f"{kind}/*/*/{FILES[kind]}.parquet"
    found = [path for system in SYSTEMS for path in sorted((data / system).glob(pattern))]
    if not found:
        raise InputError(f"no {pattern} in it", path=str(data), allowed=f"{PACKAGE} 0.12.0")
    return found


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
            path=str(path), allowed=INSTALL,
        ) from None  # fmt: skip
    try:
        known = parquet.read_schema(path).names
        filled = {name: v for name, v in (absent or {}).items() if name not in known}
        missing = [name for name in names if name not in known and name not in filled]
        if missing:
            raise InputError(
                "the file has no such column", path=str(path), key=missing[0],
                allowed=f"a parquet file with the columns {', '.join(names)}",
            )  # fmt: skip
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
    whole = column.combine_chunks()
    if str(whole.type) not in ("string", "large_string"):
        return np.asarray(whole.to_numpy(zero_copy_only=False))
    coded = whole.dictionary_encode()
    words = np.array(coded.dictionary.to_pylist(), dtype=object)
    return np.asarray(words[coded.indices.to_numpy(zero_copy_only=False)])


def seconds(columns: Columns, path: Path) -> NDArray[np.float64]:
    """The latencies in seconds.

    Raises:
        InputError: one is not above zero, or not finite.
    """
    milliseconds = columns["latency"].astype(np.float64)
    wrong = np.flatnonzero(~(np.isfinite(milliseconds) & (milliseconds > 0)))
    if len(wrong):
        raise InputError(
            f"{milliseconds[wrong[0]]} ms is not a time", path=str(path), line=int(wrong[0]) + 1,
            key="latency", value=float(milliseconds[wrong[0]]), allowed="finite numbers above 0",
        )  # fmt: skip
    return milliseconds * 1e-3


def least_of(keys: Sequence[NDArray[Any]], times: NDArray[np.float64]) -> NDArray[np.intp]:
    """Positions of the least time of each distinct row of the keys, in rising order of keys."""
    codes = [np.unique(key, return_inverse=True)[1] for key in keys]
    order = np.lexsort((times, *reversed(codes)))
    changes = np.zeros(len(order), dtype=bool)
    changes[:1] = True
    for code in codes:
        changes[1:] |= np.diff(code[order]) != 0
    return order[changes]
