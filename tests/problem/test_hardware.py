"""Accelerators: computed figures, and the shipped parts."""

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.inputs.files import names
from planner.inputs.values import load, parse
from planner.problem.hardware import Accelerator, folded


@pytest.fixture
def toy(texts: dict[str, str]) -> Accelerator:
    return parse(texts["accelerator.yaml"], "accelerator.yaml", Accelerator)


def test_ridge_is_peak_over_bandwidth(toy: Accelerator) -> None:
    assert toy.ridge("bf16") == 50.0
    assert toy.ridge("fp8") == 100.0


def test_attributes_are_si(toy: Accelerator) -> None:
    assert toy.peak_flops["bf16"] == 100e12
    assert toy.vector_flops == 10e12
    assert toy.hbm_bytes_per_second == 2e12
    assert toy.hbm_bytes == 80 * 2.0**30
    assert toy.num_multiprocessors == 100.0
    assert toy.l2_bytes == 50 * 2.0**20
    assert toy.shared_memory_bytes is None
    assert toy.gemm["bf16"].overhead_seconds == 4e-6
    assert toy.attention["flash"].backward == 0.5


@pytest.mark.parametrize("name", names("accelerator"))
def test_shipped_part_loads(name: str) -> None:
    accelerator = load(name, "accelerator", Accelerator)
    assert accelerator.name == name


@pytest.mark.parametrize(
    ("name", "precision", "ridge"),
    [
        ("h100-sxm-80gb", "bf16", 295),
        ("h100-sxm-80gb", "fp8", 590),
        ("h200-sxm-141gb", "bf16", 206),
        ("b200-sxm-180gb", "bf16", 293),
        ("gb200", "bf16", 312),
    ],
)
def test_shipped_ridge_points(name: str, precision: str, ridge: float) -> None:
    accelerator = load(name, "accelerator", Accelerator)
    assert accelerator.ridge(precision) == pytest.approx(ridge, rel=0.005)  # type: ignore[arg-type]


@pytest.mark.parametrize("alias", ["H100", "h100-sxm5-80gb", "H100 SXM"])
@pytest.mark.parametrize("factor", [1.9, 2.0, 2.1])
def test_sparse_peak_of_a_known_part(
    alias: str, factor: float, texts: dict[str, str], tmp_path: Path
) -> None:
    peak = f"{989.5 * factor} TFLOP/s"
    text = texts["accelerator.yaml"].replace("TOY", alias).replace("100 TFLOP/s", peak)
    with pytest.raises(InputError, match=r"is the sparse figure; dense is 989\.5 TFLOP/s"):
        parse(text, str(tmp_path / "a.yaml"), Accelerator)


@pytest.mark.parametrize("name", ["NVIDIA H100", "H100-SXM5", "nvidia-h100-80gb-hbm3"])
def test_a_part_is_known_by_the_spellings_people_use(name: str, texts: dict[str, str]) -> None:
    text = (
        texts["accelerator.yaml"].replace("toy-part", name).replace("100 TFLOP/s", "1979 TFLOP/s")
    )
    with pytest.raises(InputError, match=r"is the sparse figure; dense is 989\.5 TFLOP/s"):
        parse(text, "a.yaml", Accelerator)


def test_low_precision_is_no_slower(texts: dict[str, str]) -> None:
    text = texts["accelerator.yaml"].replace("200 TFLOP/s", "99 TFLOP/s")
    with pytest.raises(InputError, match="the fp8 peak is below the 16-bit one") as caught:
        parse(text, "a.yaml", Accelerator)
    assert caught.value.key == "peak.fp8.value"


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.2, 1.8, 2.2])
def test_other_peaks_of_a_known_part_are_the_users_business(
    factor: float, texts: dict[str, str]
) -> None:
    peak = f"{989.5 * factor} TFLOP/s"
    text = texts["accelerator.yaml"].replace("toy-part", "H100").replace("200 TFLOP/s", "9 PFLOP/s")
    text = text.replace("100 TFLOP/s", peak)
    assert parse(text, "a.yaml", Accelerator).name == "H100"


def test_what_if_with_twice_the_peak_is_possible(toy: Accelerator) -> None:
    part = load("h100-sxm-80gb", "accelerator", Accelerator)
    twice = dict.fromkeys(part.peak_flops, type(part.hbm_bytes)(1979e12, "what if", "assumed"))
    assert part.replace(peak_flops=twice).ridge("bf16") == pytest.approx(590.7, rel=1e-3)


def test_folded() -> None:
    assert folded("H100-96G HBM2e(500W)") == "h10096ghbm2e500w"
