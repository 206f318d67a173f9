"""Measured kernels read from files: what is understood, and what is refused where."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from planner.errors import InputError
from planner.evidence import kernel_measurements as measurements
from planner.evidence.kernel_measurements import read_latencies
from tests.evidence.products import HEAD

GOOD = "h100-sxm-80gb,bf16,4096,8192,8192,672.8 us"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "gemm.csv"
    path.write_text(text, "utf-8")
    return path


def refusal(tmp_path: Path, *rows: str, head: str = HEAD) -> InputError:
    with pytest.raises(InputError) as caught:
        read_latencies([written(tmp_path, "\n".join([head, *rows]))])
    assert caught.value.path is not None
    assert caught.value.path.endswith("gemm.csv")
    return caught.value


def test_a_row(tmp_path: Path) -> None:
    (table,) = read_latencies([written(tmp_path, f"{HEAD}\n{GOOD}\n")])
    assert (table.accelerator.name, table.dtype) == ("h100-sxm-80gb", "bf16")
    assert [column.tolist() for column in table.arrays] == [[4096], [8192], [8192], [0], [672.8e-6]]
    assert table.sources == ("gemm.csv",)
    assert table.file.name == "h100-sxm-80gb.yaml"


def test_aliases_types_and_columns_in_any_order(tmp_path: Path) -> None:
    head = "latency,quantises,k,n,m,dtype,accelerator"
    rows = ["1 ms,yes,3,2,1,fp8_block,H100-SXM", "2 ms,no,3,2,1,bfloat16,h100 sxm"]
    block, bf16 = read_latencies([written(tmp_path, "\n".join([head, *rows]))])
    assert (block.dtype, bf16.dtype) == ("fp8_block", "bf16")
    assert [column.item() for column in block.arrays] == [1, 2, 3, 1, 1e-3]
    assert bf16.quantises.item() == 0


def test_the_lowest_time_of_a_shape_counts_over_all_files(tmp_path: Path) -> None:
    rows = [GOOD, "h100,bf16,512,512,512,9 us", GOOD.replace("672.8", "700")]
    first = written(tmp_path, "\n".join([HEAD, *rows]))
    second = tmp_path / "more.csv"
    second.write_text(f"{HEAD}\nh100,bf16,512,512,512,8 us\n", "utf-8")
    (table,) = read_latencies([first, second])
    assert table.m.tolist() == [512, 4096]
    assert table.seconds.tolist() == pytest.approx([8e-6, 672.8e-6])
    assert table.sources == ("gemm.csv", "more.csv")


def test_a_part_of_one_s_own(tmp_path: Path) -> None:
    part = tmp_path / "mine.yaml"
    text = Path("topologies/accelerators/h100-sxm-80gb.yaml").read_text("utf-8")
    part.write_text(text.replace("name: h100-sxm-80gb", "name: mine"), "utf-8")
    (table,) = read_latencies([written(tmp_path, f"{HEAD}\n{part},bf16,1,1,1,1 us\n")])
    assert (table.accelerator.name, table.file) == ("mine", part)


@pytest.mark.parametrize(
    ("row", "key", "says"),
    [
        ("h100,bf16,4096,8192,8192,-3 us", "latency", "above zero"),
        ("h100,bf16,4096,8192,8192,0 us", "latency", "above zero"),
        ("h100,bf16,4096,8192,8192,672.8", "latency", "has no unit"),
        ("h100,bf16,4096,8192,8192,1e999 us", "latency", "not finite"),
        ("h100,bf16,4096,8192,8192,3 GB", "latency", "does not fit"),
        ("h100,bf17,4096,8192,8192,1 us", "dtype", "did you mean 'bf16'"),
        ("h100,nvfp4,4096,8192,8192,1 us", "dtype", "has no fp4 matmuls"),
        ("h101-sxm-80gb,bf16,1,1,1,1 us", "accelerator", "did you mean 'h100-sxm-80gb'"),
        ("no.yaml,bf16,1,1,1,1 us", "accelerator", "no.yaml: no such file"),
        ("h100,bf16,0,8192,8192,1 us", "m", "not a size"),
        ("h100,bf16,4096,-1,8192,1 us", "n", "not a size"),
        ("h100,bf16,4096,8192,1.5,1 us", "k", "not a size"),
        ("h100,bf16,4096,8192,9999999999,1 us", "k", "not a size"),
        ("h100,bf16,4096,,8192,1 us", "n", "no value"),
        ("h100,bf16,4096,8192,8192", None, "5 cells under 6 columns"),
    ],
)
def test_nonsense_is_refused_with_its_place(
    tmp_path: Path, row: str, key: str | None, says: str
) -> None:
    error = refusal(tmp_path, GOOD, row)
    assert error.line == 3
    assert error.key == key
    assert says in str(error)


def test_files_that_are_no_table(tmp_path: Path) -> None:
    assert refusal(tmp_path, GOOD, head=HEAD.replace("latency", "time")).key == "time"
    assert refusal(tmp_path, GOOD, head=HEAD.replace("n,k", "n,n")).line == 1
    assert "no rows" in str(refusal(tmp_path))
    bad = refusal(tmp_path, GOOD + ",maybe", head=HEAD + ",quantises")
    assert (bad.key, bad.line) == ("quantises", 2)
    with pytest.raises(InputError, match=r"gone\.csv: cannot be read"):
        read_latencies([tmp_path / "gone.csv"])


def test_a_size_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text(
        "accelerator,dtype,m,n,k,latency\nh100-sxm-80gb,bf16," + "9" * 5000 + ",1,1,1 us\n", "utf-8"
    )
    with pytest.raises(InputError, match="is not a size"):
        read_latencies([path])


# ---------------------------------------------------------------- the optional package


def test_without_the_package_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measurements, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"not installed.*test-kernels") as caught:
        measurements.package_files("gemm")
    assert caught.value.key == "--package"


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pyarrow.*test-kernels"):
        measurements.read_columns(Path("gemm_perf.parquet"), ("m",))


def test_the_lowest_of_each_key() -> None:
    names = np.array(["b", "a", "b", "a", "a"], dtype=object)
    sizes = np.array([1, 2, 1, 2, 1])
    times = np.array([5.0, 4.0, 3.0, 6.0, 7.0])
    best = measurements.lowest_of([names, sizes], times)
    assert best.tolist() == [4, 1, 2]  # (a, 1), (a, 2), (b, 1)
    assert measurements.lowest_of([names[:0]], times[:0]).tolist() == []


@pytest.mark.parametrize("time", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_times_are_refused_with_their_row(time: float) -> None:
    with pytest.raises(InputError, match="is not a time") as caught:
        measurements.latency_seconds({"latency": np.array([1.0, time])}, Path("x.parquet"))
    assert (caught.value.path, caught.value.line, caught.value.key) == ("x.parquet", 2, "latency")


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet, table

    text = tmp_path / "text.parquet"
    text.write_text("m,n,k\n", "utf-8")
    with pytest.raises(InputError, match="cannot be read as parquet"):
        measurements.read_columns(text, ("m",))
    other = tmp_path / "other.parquet"
    parquet.write_table(table({"m": [1, 2], "device": ["a", "b"]}), other)
    with pytest.raises(InputError, match="no such column") as caught:
        measurements.read_columns(other, ("m", "latency"))
    assert caught.value.key == "latency"
    found = measurements.read_columns(other, ("device", "m", "window"), {"window": 0})
    assert {name: column.tolist() for name, column in found.items()} == {
        "device": ["a", "b"], "m": [1, 2], "window": [0, 0],
    }  # fmt: skip
