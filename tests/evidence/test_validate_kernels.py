"""Predicted products against made ones: by hand, and where the error is known."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from planner.evidence.kernel_measurements import Latencies, read_latencies
from planner.evidence.validate_kernels import compare_latencies, held_out, large, predicted
from tests.evidence import products

KNOWN = SimpleNamespace(
    efficiency=products.EFFICIENCY,
    k_half=products.K_HALF,
    tile_m=products.TILE_M,
    tile_n=products.TILE_N,
    overhead_seconds=products.OVERHEAD,
)


def read(tmp_path: Path, *rows: str, head: str = products.HEAD) -> list[Latencies]:
    path = tmp_path / "gemm.csv"
    path.write_text("\n".join([head, *rows]), "utf-8")
    return read_latencies([path])


def test_predictions_are_the_formula_of_the_file_s_numbers(tmp_path: Path) -> None:
    (table,) = read_latencies([products.write_csv(tmp_path / "gemm.csv")])
    assert len(table.m) == len(products.SIZES) ** 3
    assert predicted(table, KNOWN) == pytest.approx(table.seconds, rel=1e-12)


def test_a_timed_quantisation_is_a_start_and_five_bytes_an_element(tmp_path: Path) -> None:
    (table,) = read_latencies([products.write_quantising_csv(tmp_path / "fp8.csv")])
    assert table.accelerator.name == "h100-sxm-80gb"
    assert predicted(table, KNOWN) == pytest.approx(table.seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("dtype", "num_bytes"), [("fp8", 5.0), ("fp8_block", 3.03125), ("nvfp4", 2.5625)]
)
def test_bytes_that_each_quantisation_moves(tmp_path: Path, dtype: str, num_bytes: float) -> None:
    """Read 2 bytes (a dynamic scale of the tensor: twice), write 1 or 1/2 and the scales."""
    rows = [f"b200-sxm-180gb,{dtype},4096,4096,2048,1 ms,{answer}" for answer in ("no", "yes")]
    (table,) = read(tmp_path, *rows, head=products.HEAD + ",quantises")
    plain, cast = predicted(table, KNOWN)
    assert table.quantises.tolist() == [0, 1]
    bandwidth = 7.67e12 * 0.9
    assert cast - plain == pytest.approx(4e-6 + num_bytes * 4096 * 2048 / bandwidth, rel=1e-9)


def test_errors_of_measurements_that_take_a_fifth_longer(tmp_path: Path) -> None:
    """A file whose accelerator has the very coefficients is off by what the latencies are."""
    part = tmp_path / "known.yaml"
    text = Path("topologies/accelerators/h100-sxm-80gb.yaml").read_text("utf-8")
    head, bf16 = text.split("\ngemm:\n  bf16:\n")
    known = {"efficiency": 0.7, "k_half": 120, "tile_m": 128, "tile_n": 64, "overhead": "4 us"}
    lines = [
        f"    {key}: {{value: {value}, source: made, status: assumed}}"
        for key, value in known.items()
    ]
    rest = bf16.split("\n", len(known))[-1]
    part.write_text("\n".join([f"{head}\ngemm:\n  bf16:", *lines, rest]), "utf-8")
    csv = products.write_csv(tmp_path / "gemm.csv", factor=1.25)
    csv.write_text(csv.read_text("utf-8").replace("h100-sxm-80gb", str(part)), "utf-8")
    document = compare_latencies(read_latencies([csv])).to_document()
    assert document["median_fraction"] == pytest.approx(0.2, rel=1e-6)
    assert document["bias_fraction"] == pytest.approx(-0.2, rel=1e-6)
    entry = document["gemm"]["h100-sxm-80gb"]["bf16"]
    assert entry["all"]["rows"] == 512
    assert entry["held_out"]["p95_fraction"] == pytest.approx(0.2, rel=1e-6)
    assert (document["scored"], document["rows"]) == ("all", 512)
    apart = compare_latencies(read_latencies([csv]), scored="held_out").to_document()
    assert apart["rows"] == entry["held_out"]["rows"] < 512


def test_small_products_are_counted_and_not_scored(tmp_path: Path) -> None:
    rows = [f"h100-sxm-80gb,bf16,{m},4096,4096,1 ms" for m in (256, 511, 512, 1024)]
    tables = read(tmp_path, *rows)
    assert large(tables[0]).m.tolist() == [512, 1024]
    assert compare_latencies(tables).skipped == {"m, n or k below 512": 2}


def test_a_type_without_coefficients_is_skipped(tmp_path: Path) -> None:
    part = tmp_path / "part.yaml"
    text = Path("topologies/accelerators/h100-sxm-80gb.yaml").read_text("utf-8")
    cut = text[: text.index("  fp8:\n    efficiency")] + text[text.index("# Shares of the dense") :]
    part.write_text(cut, "utf-8")
    tables = read(tmp_path, f"{part},fp8,4096,4096,4096,1 ms", f"{part},bf16,4096,4096,4096,1 ms")
    found = compare_latencies(tables)
    assert found.skipped == {"h100-sxm-80gb has no fp8 coefficients": 1}
    assert [errors.dtype for errors in found.gemm] == ["bf16"]


def test_a_fifth_of_shapes_is_held_out_whatever_the_part(tmp_path: Path) -> None:
    (table,) = read_latencies([products.write_csv(tmp_path / "gemm.csv")])
    mask = held_out(table)
    assert 0.15 < np.mean(mask) < 0.25
    reverse = table.with_arrays([column[::-1] for column in table.arrays])
    assert (held_out(reverse) == mask[::-1]).all()
    # crc32("512,512,512") = 868 742 189, crc32("896,896,896") = 151 007 485
    (two,) = read(tmp_path, "b200,nvfp4,512,512,512,1 us", "b200,nvfp4,896,896,896,1 us")
    assert held_out(two).tolist() == [False, True]
