"""Fits to latencies whose coefficients are known give those coefficients back."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.evidence.kernel_fit import KernelCalibration, fit_kernels
from planner.evidence.kernel_measurements import read_latencies
from planner.inputs.values import load
from planner.problem.hardware import Accelerator
from tests.evidence import products


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> KernelCalibration:
    folder = tmp_path_factory.mktemp("gemm")
    files = [products.write_csv(folder / "gemm.csv")]
    files.append(products.write_quantising_csv(folder / "fp8.csv"))
    return fit_kernels(read_latencies(files))


@pytest.mark.parametrize("position", [0, 1])
def test_known_coefficients_are_recovered(found: KernelCalibration, position: int) -> None:
    fit = found.fits[position]
    assert fit.dtype == ("bf16", "fp8")[position]
    assert (fit.coefficients.tile_m, fit.coefficients.tile_n) == (128, 64)
    assert fit.coefficients.efficiency == pytest.approx(products.EFFICIENCY, rel=0.005)
    assert fit.coefficients.k_half == pytest.approx(products.K_HALF, rel=0.03)
    assert fit.coefficients.overhead_seconds == pytest.approx(products.OVERHEAD, rel=0.02)
    assert fit.held_out.median_fraction is not None
    assert fit.held_out.median_fraction < 0.002
    assert fit.held_out.rows + fit.fitted.rows == 512
    assert fit.before is not None and fit.before.median_fraction is not None
    assert fit.before.median_fraction > 0.05


def test_figures_say_what_they_rest_on(found: KernelCalibration) -> None:
    figure = found.fits[1].coefficients.efficiency
    assert figure.status == "fitted"
    assert "fp8.csv" in figure.source
    assert "20 % of shapes held out" in figure.source
    assert "quantisation" in figure.source
    assert "quantisation" not in found.fits[0].coefficients.efficiency.source


def test_the_file_is_the_accelerator_s_with_the_fits(
    found: KernelCalibration, tmp_path: Path
) -> None:
    text = found.to_yaml("h100-sxm-80gb")
    path = tmp_path / "fitted.yaml"
    path.write_text(text, "utf-8")
    part, shipped = (load(p, "accelerator", Accelerator) for p in (path, "h100-sxm-80gb"))
    assert part.gemm["bf16"] == found.fits[0].coefficients
    assert part.gemm["fp8"] == found.fits[1].coefficients
    assert part.gemm["fp16"].efficiency == part.gemm["bf16"].efficiency
    assert "(BF16)" in part.gemm["fp16"].efficiency.source
    assert part.replace(gemm=shipped.gemm) == shipped
    old = Path("topologies/accelerators/h100-sxm-80gb.yaml").read_text("utf-8").splitlines()
    changed = [line for line in text.splitlines() if line not in old]
    assert len(changed) == 15  # five figures of three precisions; comments and all else stay


def test_block_scaled_fp8_stands_in_only_where_fp8_was_not_measured(tmp_path: Path) -> None:
    csv = products.write_quantising_csv(tmp_path / "fp8.csv")
    block = tmp_path / "block.csv"
    block.write_text(csv.read_text("utf-8").replace(",fp8,", ",fp8_block,"), "utf-8")
    both = fit_kernels(read_latencies([block, csv]))
    assert [fit.dtype for fit in both.fits] == ["fp8", "fp8_block"]
    assert both.coefficients("h100-sxm-80gb") == {"fp8": both.fits[0].coefficients}
    alone = fit_kernels(read_latencies([block]))
    assert alone.coefficients("h100-sxm-80gb") == {"fp8": alone.fits[0].coefficients}


@pytest.mark.parametrize(
    ("keep", "key", "says"),
    [
        (lambda m, n, k: m == n == k, "dtype", "8 bf16 products of h100-sxm-80gb"),
        (lambda m, n, k: m in (512, 1000), "m", "2 values of m"),
        (lambda m, n, k: k == 4096, "k", "1 values of k"),
    ],
)
def test_too_few_shapes_are_refused(tmp_path: Path, keep, key: str, says: str) -> None:
    rows = [
        f"h100,bf16,{m},{n},{k},{products.latency(m, n, k) * 1e6!r} us"
        for m, n, k in products.shapes()
        if keep(m, n, k)
    ]
    path = tmp_path / "few.csv"
    path.write_text("\n".join([products.HEAD, *rows]), "utf-8")
    with pytest.raises(InputError, match="too few to fit") as caught:
        fit_kernels(read_latencies([path]))
    assert (caught.value.path, caught.value.key) == ("few.csv", key)
    assert says in str(caught.value)
