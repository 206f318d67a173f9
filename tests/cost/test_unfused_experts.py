"""Experts with biases and a clamped activation: bytes per row and starts per expert, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from planner.cost.experts import ExpertShare, ExpertTimes, expert_times
from planner.layouts.keys import DISPATCHERS
from tests.expert_scenarios import EVEN, sparse_context, sparse_model
from tests.scenarios import accelerator, gemm, topology, training

HBM, START = 1e9, 1e-3
H, F, TOP_K, NUM_EXPERTS = 32, 64, 2, 8


def times(
    tokens: int = 64, ep: int = 1, etp: int = 1, start: float = 0.0, **of_model: Any
) -> ExpertTimes:
    part = accelerator(hbm_bytes_per_second=HBM, gemm={"bf16": gemm(overhead_seconds=start)})
    ctx = sparse_context(
        toy=sparse_model(**of_model),
        topology=topology(accelerator=part),
        training=training(**EVEN),
    )
    assert ctx.model.moe is not None
    share = ExpertShare(tokens / 64, 1, 1, ep, etp, DISPATCHERS.index("alltoall"))
    return expert_times(ctx, ctx.model.moe, share)


def added(plain: ExpertTimes, unfused: ExpertTimes) -> tuple[float, float]:
    """Seconds of memory-bound kernels that one has beyond the other, both passes."""
    return (
        float(unfused.memory_bound.forward) - float(plain.memory_bound.forward),
        float(unfused.memory_bound.backward) - float(plain.memory_bound.backward),
    )


@pytest.mark.parametrize("tokens", [64, 640])
@pytest.mark.parametrize("biases", [{"linear_bias": True}, {"biases": ("mlp",)}])
def test_biases_pass_hbm_in_fp32(biases: dict[str, Any], tokens: int) -> None:
    """Of each routed row, 28 bytes an element of the hidden size; backwards 40."""
    rows = TOP_K * tokens
    found = added(times(tokens), times(tokens, **biases))
    assert found == pytest.approx((28 * rows * H / HBM, 40 * rows * H / HBM), rel=1e-9)


@pytest.mark.parametrize(("etp", "rows"), [(1, TOP_K * 64), (4, 4 * TOP_K * 64)])
def test_clamps_are_kernels_of_their_own(etp: int, rows: int) -> None:
    """16 bytes an element of the experts' feed-forward size; backwards 34. Ranks that share experts
    have each other's rows, and a share of the size."""
    plain, clamped = (times(etp=etp, clamped_activation=c) for c in (False, True))
    elements = rows * F / etp
    assert added(plain, clamped) == pytest.approx((16 * elements / HBM, 34 * elements / HBM))


def test_both_add_up() -> None:
    both = added(times(), times(linear_bias=True, clamped_activation=True))
    rows = TOP_K * 64
    assert both[0] == pytest.approx(rows * (28 * H + 16 * F) / HBM)
    assert both[1] == pytest.approx(rows * (40 * H + 34 * F) / HBM)


@pytest.mark.parametrize("ep", [1, 2, 8])
def test_biases_are_started_expert_by_expert(ep: int) -> None:
    """2 kernels more forwards and 8 more backwards for each of the rank's experts."""
    slow = added(times(ep=ep, start=START), times(ep=ep, start=START, linear_bias=True))
    fast = added(times(ep=ep), times(ep=ep, linear_bias=True))
    local = NUM_EXPERTS / ep
    starts = slow[0] - fast[0], slow[1] - fast[1]
    assert starts == pytest.approx((2 * local * START, 8 * local * START))


def test_matmuls_are_as_they_were() -> None:
    plain, unfused = times(), times(linear_bias=True, clamped_activation=True)
    assert unfused.gemm == plain.gemm


def test_biases_of_attention_are_not_the_experts() -> None:
    assert added(times(), times(biases=("qkv", "attention_output"))) == (0.0, 0.0)
