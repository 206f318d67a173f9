"""Reading the optional package: what is said without it, and of files that are not its own."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from planner.errors import InputError
from planner.evidence import kernel_package as package


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(package, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"not installed.*test-kernels") as caught:
        package.package_files("gemm")
    assert caught.value.key == "--package"


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pyarrow.*test-kernels"):
        package.read_columns(Path("gemm_perf.parquet"), ("m",))


def test_the_least_of_each_key() -> None:
    names = np.array(["b", "a", "b", "a", "a"], dtype=object)
    sizes = np.array([1, 2, 1, 2, 1])
    times = np.array([5.0, 4.0, 3.0, 6.0, 7.0])
    best = package.least_of([names, sizes], times)
    assert best.tolist() == [4, 1, 2]  # (a, 1), (a, 2), (b, 1)
    assert package.least_of([names[:0]], times[:0]).tolist() == []


@pytest.mark.parametrize("time", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_times_are_refused_with_their_row(time: float) -> None:
    with pytest.raises(InputError, match="is not a time") as caught:
        package.seconds({"latency": np.array([1.0, time])}, Path("x.parquet"))
    assert (caught.value.path, caught.value.line, caught.value.key) == ("x.parquet", 2, "latency")


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet, table

    text = tmp_path / "text.parquet"
    text.write_text("m,n,k\n", "utf-8")
    with pytest.raises(InputError, match="cannot be read as parquet"):
        package.read_columns(text, ("m",))
    other = tmp_path / "other.parquet"
    parquet.write_table(table({"m": [1, 2], "device": ["a", "b"]}), other)
    with pytest.raises(InputError, match="no such column") as caught:
        package.read_columns(other, ("m", "latency"))
    assert caught.value.key == "latency"
    found = package.read_columns(other, ("device", "m", "window"), {"window": 0})
    assert {name: column.tolist() for name, column in found.items()} == {
        "device": ["a", "b"], "m": [1, 2], "window": [0, 0],
    }  # fmt: skip
