"""Gradients of the LM head's weights that wait for the end of the step, by hand."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.cost.step import StepTime, evaluate
from planner.layouts.layout import Layout
from tests.oracles import innermost_splits
from tests.scenarios import (
    PEAK,
    context,
    model,
    shipped_software,
    software,
    unlimited_topology,
)

VOCABULARY, M = 4096, 8
HEAD = 2 * 64 * 32 * VOCABULARY / PEAK
"""Seconds of one of the head's three matmuls on a micro-batch of 64 tokens of 32 elements."""


def spent(deferred: int, layout: Layout, vocabulary: int = VOCABULARY) -> dict[str, float]:
    ctx = context(
        topology=unlimited_topology(),
        model=model(vocab_size=vocabulary),
        software=software(deferred_head_gradients=deferred),
    )
    found = evaluate(ctx, layout, innermost_splits(layout))
    return {f.name: float(getattr(found, f.name)) for f in fields(StepTime)}


def layouts() -> list[Layout]:
    return [Layout(pp=4, num_microbatches=M), Layout(pp=4, vp=2, num_microbatches=M)]


@pytest.mark.parametrize("layout", layouts(), ids=lambda one: one.schedule)
@pytest.mark.parametrize(
    ("deferred", "matmuls"),
    # of 3: all weight gradients in the slot, those of 6, of 2, and of none of 8 micro-batches
    [(0, 3.0), (2, 2.75), (6, 2.25), (8, 2.0), (22, 2.0)],
)
def test_last_stage_is_ahead_by_what_waits(layout: Layout, deferred: int, matmuls: float) -> None:
    """Stages of 2 layers each: the last has the head besides, the mean stage a quarter of it."""
    found = spent(deferred, layout)
    assert found["stage_imbalance"] == pytest.approx(M * 0.75 * matmuls * HEAD, rel=1e-9)


@pytest.mark.parametrize("layout", layouts(), ids=lambda one: one.schedule)
def test_deferring_shortens_the_step(layout: Layout) -> None:
    """By a head's matmul a micro-batch, and by what that adds to the idle slots of the others."""
    whole, deferred = (sum(spent(number, layout).values()) for number in (0, M))
    assert whole - deferred >= M * HEAD * (1 - 1e-9)
    assert whole - deferred < (M + 4) * HEAD


def test_without_stages_nothing_is_idle_to_wait_for() -> None:
    layout = Layout(num_microbatches=M)
    assert spent(22, layout) == spent(0, layout)


@settings(deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 4), st.integers(1, 4096))
def test_deferring_more_never_makes_a_step_longer(
    deferred: int, more: int, vp: int, vocabulary: int
) -> None:
    layout = Layout(pp=2, vp=vp, num_microbatches=M)
    less = sum(spent(deferred, layout, vocabulary).values())
    assert sum(spent(deferred + more, layout, vocabulary).values()) <= less * (1 + 1e-12)


def test_nemo_defers_as_its_recipes_do() -> None:
    """wgrad_deferral_limit is 22 in most of them and 50 in the others; Megatron-Core's is off."""
    assert shipped_software("nemo").deferred_head_gradients == 22
    assert shipped_software("megatron-core").deferred_head_gradients == 0
