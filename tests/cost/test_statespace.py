"""Scans of state-space layers: FLOPs by an implementation that counts them, bytes by hand."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.statespace import (
    all_to_all_elements,
    scan_activations,
    scan_bytes,
    scan_flops,
    scan_intensity,
    scan_widths,
)
from planner.inputs.values import load
from planner.problem.blocks import Mamba
from planner.problem.hardware import Accelerator
from planner.problem.model import Model
from tests.hybrid_scenarios import mamba

# ---------------------------------------------------------------- the algorithm itself


class Counter:
    """Matmuls that count 2·m·n·k for each of a batch."""

    flops = 0.0

    def __call__(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        self.flops += 2.0 * np.prod(a.shape) * b.shape[-1]
        return a @ b


def recurrence(
    x: np.ndarray, decay: np.ndarray, b: np.ndarray, c: np.ndarray, per_group: int
) -> np.ndarray:
    """Token by token: h = a·h + B x, y = C h; shapes (s, heads, p), (s, heads), (s, groups, n)."""
    length, heads, p = x.shape
    y = np.zeros_like(x)
    state = np.zeros((heads, b.shape[-1], p))
    for t in range(length):
        group = np.repeat(b[t], per_group, axis=0), np.repeat(c[t], per_group, axis=0)
        state = decay[t][:, None, None] * state + group[0][:, :, None] * x[t][:, None, :]
        y[t] = np.einsum("hn,hnp->hp", group[1], state)
    return y


def in_chunks(
    x: np.ndarray, decay: np.ndarray, b: np.ndarray, c: np.ndarray, per_group: int, chunk: int
) -> tuple[np.ndarray, dict[str, float]]:
    """The same by chunks (Mamba-2, listing 1), with the FLOPs of each kind of matmul."""
    parts = {name: Counter() for name in ("scores", "inside", "states", "outputs")}
    length, heads, p = x.shape
    y, state = np.zeros_like(x), np.zeros((heads, b.shape[-1], p))
    for start in range(0, length, chunk):
        span = slice(start, start + chunk)
        xs, bs, cs = (part[span].transpose(1, 0, 2) for part in (x, b, c))
        total = np.cumsum(np.log(decay[span].T), axis=1)  # (heads, chunk)
        mask = np.tril(np.exp(total[:, :, None] - total[:, None, :]))
        scores = np.repeat(parts["scores"](cs, bs.transpose(0, 2, 1)), per_group, axis=0)
        bs, cs = np.repeat(bs, per_group, axis=0), np.repeat(cs, per_group, axis=0)
        found = parts["inside"](scores * mask, xs)
        found += np.exp(total)[:, :, None] * parts["outputs"](cs, state)
        left = np.exp(total[:, -1:] - total)[:, :, None] * bs
        state = np.exp(total[:, -1])[:, None, None] * state
        state = state + parts["states"](left.transpose(0, 2, 1), xs)
        y[span] = found.transpose(1, 0, 2)
    return y, {name: counter.flops / length for name, counter in parts.items()}


@pytest.mark.parametrize(
    "sizes", [mamba(), mamba(num_groups=8), mamba(state_size=6, chunk_size=8, head_dim=5)]
)
def test_flops_are_those_of_the_chunked_algorithm(sizes: Mamba) -> None:
    """Which gives what the recurrence gives; of the masked matmul half is counted."""
    rng = np.random.default_rng(0)
    length, per_group = 48, sizes.num_heads // sizes.num_groups
    x = rng.normal(size=(length, sizes.num_heads, sizes.head_dim))
    b, c = rng.normal(size=(2, length, sizes.num_groups, sizes.state_size))
    decay = rng.uniform(0.5, 1.0, size=(length, sizes.num_heads))
    found, flops = in_chunks(x, decay, b, c, per_group, sizes.chunk_size)
    np.testing.assert_allclose(found, recurrence(x, decay, b, c, per_group), rtol=1e-9, atol=1e-9)
    executed = sum(flops.values()) - flops["inside"] / 2
    counted = scan_flops(sizes, scan_widths(sizes, 1, 1))
    assert counted.forward == pytest.approx(executed)
    assert counted.backward == pytest.approx(2 * executed + flops["scores"] + flops["states"])


# ---------------------------------------------------------------- by hand


def test_widths_by_hand() -> None:
    """64 elements in 8 heads and 2 groups of a state of 4, in chunks of 16."""
    whole = scan_widths(mamba(), 1, 1)
    assert (whole.inner, whole.inputs, whole.heads) == (64, 8, 8)
    assert (whole.states, whole.scores) == (64 * 4 / 16, 2 * 16)
    half = scan_widths(mamba(), 2, 1)
    assert (half.inner, half.inputs, half.heads, half.scores) == (32, 4, 4, 16)


def test_groups_are_copied_beyond_one_a_rank() -> None:
    """2 groups over cp 2: one each, per token of a shard as before; over cp 8: four copies."""
    assert scan_widths(mamba(), 1, 2) == scan_widths(mamba(), 1, 1)
    assert scan_widths(mamba(), 1, 8).inputs == 8 * 4
    assert all_to_all_elements(mamba(), 1, 2) == 3 * 64 + 2 * 2 * 4 + 8
    assert all_to_all_elements(mamba(), 2, 4) == 3 * 32 + 2 * 4 * 4 + 4


def test_bytes_by_hand() -> None:
    """d 64, k 8, states 16 and scores 32 of FP32, 8 heads whose steps and decays take 18 bytes."""
    moved = scan_bytes(scan_widths(mamba(), 1, 1), 2.0)
    convolution = 2 * 2 * (64 + 16)
    states = 2 * (64 + 8) + 4 * 16 + 4 * 2 * 16
    scan = 2 * 2 * 8 + 4 * 32 + 4 * 32 + 4 * 16 + 2 * (2 * 64 + 8) + 2 * 2 * 64
    norm = 2 * 2 * 64
    assert moved.forward == convolution + states + scan + norm + 8 * 18
    assert 2 < moved.backward / moved.forward < 4


def test_kept_bytes_by_hand() -> None:
    """y and the norm's input; back, x, B and C convolved again, all gradients, FP32 states."""
    held = scan_activations(scan_widths(mamba(), 1, 1), 2.0)
    assert held.kept == 2 * 2 * 64
    assert held.working == 2 * (80 + 80 + 152) + 2 * 4 * 16


def test_scans_of_nemotron_3_lie_left_of_every_ridge() -> None:
    """HBM-bound, as SSD is on every part that ships."""
    model = load("nemotron-3-nano", "model", Model)
    assert model.mamba is not None
    assert 10 < scan_intensity(model.mamba, 2.0) < 30


@pytest.mark.parametrize(
    ("part", "seconds"), [("h100-sxm-80gb", 1.2756e-3), ("h200-sxm-141gb", 1.0200e-3)]
)
def test_convolution_against_its_measurement(part: str, seconds: float) -> None:
    """Nemotron 3 Nano's 6,144 channels, 131,072 tokens in sequences of 8,192 (PyPI
    aiconfigurator-core 0.12.0, mamba2_perf, causal_conv1d_fn): its traffic at our HBM rate takes
    73 to 84 % of the time, what frameworks' memory-bound multipliers of 1.2 to 1.3 stand for."""
    model, accelerator = (
        load("nemotron-3-nano", "model", Model),
        load(part, "accelerator", Accelerator),
    )
    assert model.mamba is not None
    moved = 2 * 2.0 * model.mamba.conv_size * 131072
    rate = float(accelerator.hbm_bytes_per_second * accelerator.hbm_efficiency)
    assert 0.70 < moved / rate / seconds < 0.90


@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2, 4])), min_size=1, max_size=8)
)
@settings(max_examples=20, deadline=None)
def test_table_equals_numbers(rows: list[tuple[int, int]]) -> None:
    tp, cp = (np.array(column) for column in zip(*rows, strict=True))
    table = scan_widths(mamba(), tp, cp)
    for i, row in enumerate(rows):
        one = scan_widths(mamba(), *row)
        for formula in (
            lambda w: scan_flops(mamba(), w),
            lambda w: scan_bytes(w, 2.0),
            lambda w: scan_activations(w, 2.0),
        ):
            column, alone = asdict(formula(table)), asdict(formula(one))
            assert {name: float(c[i]) for name, c in column.items()} == alone
