"""Scans of state-space layers: FLOPs by an implementation that counts them, bytes by hand."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.compute import RankShare, convolution_seconds, scan_seconds
from planner.cost.context import CostContext
from planner.cost.passes import ForwardBackward
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
from planner.problem.model import Model
from tests.expert_scenarios import shipped_scenario
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
    """Its kernels would wait for HBM, if they waited for nothing of their own."""
    model = load("nemotron-3-nano", "model", Model)
    assert model.mamba is not None
    assert 10 < scan_intensity(model.mamba, 2.0) < 30


# ---------------------------------------------------------------- seconds

CONVOLUTIONS = {
    "dgx-h100": 1.2756e-3, "dgx-h200": 1.0200e-3, "dgx-b200": 0.8316e-3, "dgx-b300": 0.8038e-3,
    "gb200-nvl72": 0.8118e-3, "gb300-nvl72": 0.7796e-3,
}  # fmt: skip
"""Nemotron 3 Nano's 6,144 channels, 131,072 tokens in sequences of 8,192 (PyPI
aiconfigurator-core 0.12.0, mamba2_perf, causal_conv1d_fn)."""

SCAN_PICOSECONDS = 73.0
"""Assumed for convolution, scan and norm of Nemotron 3 models, in both passes, per token and inner
element; SCAN_FLOPS_PER_SECOND follows from it."""


def nano(topology: str, **sizes: int) -> CostContext:
    """Nemotron 3 Nano on a shipped cluster; its scan may be changed to other sizes."""
    ctx = CostContext.of(shipped_scenario("nemotron-3-nano", topology, 8))
    assert ctx.model.mamba is not None
    return replace(ctx, model=ctx.model.replace(mamba=ctx.model.mamba.replace(**sizes)))


def picoseconds(ctx: CostContext) -> ForwardBackward:
    """Of a scan of many tokens, per token and inner element."""
    assert ctx.model.mamba is not None
    share = RankShare(tp=1, cp=1, mbs=1000, sp=0, ring_members=1)
    elements = share.tokens(ctx) * ctx.model.mamba.inner_size
    return scan_seconds(ctx, ctx.model.mamba, share).times(1e12 / elements)


@pytest.mark.parametrize("topology", CONVOLUTIONS)
def test_convolution_against_its_measurement(topology: str) -> None:
    """Every element is read once and written once."""
    per_element = convolution_seconds(nano(topology))
    assert 2 * 6144 * 131072 * per_element == pytest.approx(CONVOLUTIONS[topology], rel=0.18)


def test_convolution_does_not_follow_its_memory() -> None:
    """B200's HBM is 2.39 times as fast as H100's, its convolution 1.53 times."""
    h100, b200 = (convolution_seconds(nano(name)) for name in ("dgx-h100", "dgx-b200"))
    measured = CONVOLUTIONS["dgx-h100"] / CONVOLUTIONS["dgx-b200"]
    assert h100 / b200 == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize("topology", [*CONVOLUTIONS, "mi300x"])
def test_scan_takes_as_long_on_every_recent_type(topology: str) -> None:
    """Peaks and HBM differ 2.5 times. Backward, matmuls run twice more and some again."""
    found = picoseconds(nano(topology))
    assert found.both == pytest.approx(SCAN_PICOSECONDS, rel=0.1)
    assert 2 < found.backward / found.forward < 3


def test_scan_waits_for_memory_where_that_is_slower() -> None:
    """A100: 2.04 TB/s for the 31 reads and writes of x, y, z and their gradients in both passes."""
    a100, h100 = picoseconds(nano("dgx-a100")).both, picoseconds(nano("dgx-h100")).both
    assert a100 > 1.1 * h100
    assert a100 > 1e12 * 2.0 * (7 + 1 + 16 + 7) / 2.04e12


def test_scan_of_a_smaller_state_is_shorter() -> None:
    """Its matmuls are: 128 + 4·64 + 32 FLOPs an element forward instead of 128 + 4·128 + 64."""
    whole, half = (picoseconds(nano("dgx-b200", state_size=n)) for n in (128, 64))
    convolution = 2e12 * convolution_seconds(nano("dgx-b200"))
    saved = (704 - 416) / 35.0 + convolution * 2 * (8 * 64) / 4096
    assert whole.forward - half.forward == pytest.approx(saved, rel=1e-3)


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
