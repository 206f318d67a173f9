"""Products whose latencies are known: the formula of the model written out with plain numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import ceil, sqrt
from pathlib import Path

PEAK, HBM, MULTIPROCESSORS = 989.5e12, 3.35e12 * 0.9, 132  # of h100-sxm-80gb
EFFICIENCY, K_HALF, TILE_M, TILE_N, OVERHEAD = 0.7, 120.0, 128, 64, 4e-6

SIZES = (512, 640, 1000, 1536, 2048, 3000, 4096, 8192)
HEAD = "accelerator,dtype,m,n,k,latency"


def latency(m: int, n: int, k: int, peak: float = PEAK, input_bytes: float = 2.0) -> float:
    """Seconds of one product with the coefficients above."""
    tiles = ceil(m / TILE_M) * ceil(n / TILE_N)
    slots = MULTIPROCESSORS * ceil(tiles / MULTIPROCESSORS)
    work = 2 * tiles * TILE_M * TILE_N * k * sqrt(slots / tiles)
    compute = work / (peak * EFFICIENCY * k / (k + K_HALF))
    moved = (input_bytes * (m * k + k * n) + 2 * m * n) / HBM
    return OVERHEAD + (compute**3 + moved**3) ** (1 / 3)


def shapes() -> Iterator[tuple[int, int, int]]:
    """512 shapes, ragged ones among them."""
    return product(SIZES, SIZES, SIZES)


def write_csv(path: Path, factor: float = 1.0) -> Path:
    """BF16 products on an H100, each taking `factor` times what the coefficients say."""
    rows = [
        f"h100-sxm-80gb,bf16,{m},{n},{k},{factor * latency(m, n, k) * 1e6!r} us"
        for m, n, k in shapes()
    ]
    path.write_text("\n".join([HEAD, *rows]) + "\n", "utf-8")
    return path


def write_quantising_csv(path: Path) -> Path:
    """The same in FP8, with a cast of the inputs: a start, and five bytes for each of the m·k."""
    rows = []
    for m, n, k in shapes():
        cast = OVERHEAD + 5 * m * k / HBM
        seconds = latency(m, n, k, peak=2 * PEAK, input_bytes=1.0) + cast
        rows.append(f"H100,fp8,{m},{n},{k},{seconds * 1e6!r} us,yes")
    path.write_text("\n".join([HEAD + ",quantises", *rows]) + "\n", "utf-8")
    return path
