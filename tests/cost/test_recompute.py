"""Layers run again by count: time and memory by hand, between those of none and of all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from planner.cost.activations import layer_activations
from planner.cost.context import CostContext
from planner.cost.flops import executed_flops
from planner.cost.memory import stage_memory
from planner.cost.recompute import KEPT, Activation, kept_share, recomputes_layers
from planner.cost.stage_split import chunk_layers, chunk_range
from planner.cost.stages import StageLayers, candidate_ranks
from planner.cost.step import StepTime, evaluate
from planner.layouts.keys import RECOMPUTE
from planner.layouts.layout import Layout
from planner.problem.blocks import DENSE
from tests.oracles import innermost_splits
from tests.scenarios import context, model

SLOT = (
    "compute_gemm", "compute_attention", "compute_memory_bound", "recompute", "loss",
    "tp", "cp", "ep", "stage_imbalance",
)  # fmt: skip
"""Terms that add up to the slowest stage's slots."""


def spent(ctx: CostContext, layout: Layout) -> StepTime:
    return evaluate(ctx, layout, innermost_splits(layout))


def slots(ctx: CostContext, layout: Layout) -> float:
    found = spent(ctx, layout)
    return float(sum(getattr(found, name) for name in SLOT))


LAYOUTS = {
    "alone": Layout(),
    "tensor, context": Layout(tp=2, cp=2, sp=True, num_microbatches=4),
    "exchanged heads": Layout(cp=4, cp_kind="hierarchical", cp_a2a=2),
    "even stages": Layout(pp=2, num_microbatches=4),
    "uneven stages": Layout(tp=2, pp=4, num_microbatches=8),
    "given stages": Layout(pp=3, num_microbatches=6, stage_layers=(3, 5, 3)),
    "interleaved": Layout(pp=2, vp=2, num_microbatches=4),
    "overlapped": Layout(tp=4, sp=True, overlap="tp"),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("layers", [1, 2])
def test_the_slowest_stage_runs_so_many_of_its_layers_again(name: str, layers: int) -> None:
    """None again and all again differ by all of its layers; n differ by n of them a chunk."""
    base = LAYOUTS[name]
    ctx = context(model=model(num_layers=11))
    none, full = slots(ctx, base), slots(ctx, replace(base, recompute="full"))
    most = max(base.stage_layers or (-(-11 // base.pp),))
    counted = replace(base, recompute="full", recompute_layers=layers)
    expected = none + layers * base.vp / most * (full - none)
    assert slots(ctx, counted) == pytest.approx(expected, rel=1e-9)
    assert none < slots(ctx, counted) < full


@pytest.mark.parametrize("name", LAYOUTS)
def test_so_many_of_all_layers_run_again(name: str) -> None:
    base = LAYOUTS[name]
    ctx = context(model=model(num_layers=11))
    counted = replace(base, recompute="full", recompute_layers=2)
    full = replace(base, recompute="full")
    share = 2 * base.pp * base.vp / 11
    assert spent(ctx, counted).recompute == pytest.approx(share * spent(ctx, full).recompute)
    none = executed_flops(ctx, base)
    again = executed_flops(ctx, counted) - none
    assert again == pytest.approx(share * (executed_flops(ctx, full) - none))


def test_the_step_grows_and_the_peak_falls_with_every_layer() -> None:
    ctx = context(model=model(num_layers=12))
    for name in ("alone", "even stages", "interleaved", "overlapped"):
        base = replace(LAYOUTS[name], recompute="full")
        most = 12 // (base.pp * base.vp)
        rows = [replace(base, recompute_layers=n) for n in range(1, most)] + [base]
        steps = [float(spent(ctx, row).total) for row in rows]
        peaks = [peak(ctx, row) for row in rows]
        assert steps == sorted(steps) and len(set(steps)) == len(steps)
        assert peaks == sorted(peaks, reverse=True)


def peak(ctx: CostContext, layout: Layout) -> float:
    return float(np.max(stage_memory(ctx, layout, candidate_ranks(ctx, layout)).total))


def test_the_others_keep_all_they_have() -> None:
    """A first stage of 4 micro-batches in flight: 5 of its 6 layers, or 4, and one worked on."""
    ctx = context(model=model(num_layers=24))
    base = Layout(pp=4, num_microbatches=8, recompute="full")
    layer = layer_activations(ctx, base, DENSE)
    fraction = ctx.software.coefficients.allocator_fraction
    found = {}
    for n in (1, 2, 0):
        first = StageLayers(np.array([0]), np.array([6]))
        memory = stage_memory(ctx, replace(base, recompute_layers=n), first)
        found[n] = (float(memory.activations[0]), float(memory.allocator[0]))
    for n in (1, 2):
        others = (6 - n) * layer.everything
        assert found[n][0] - found[0][0] == pytest.approx(4 * (others - (6 - n) * layer.kept))
        assert found[n][1] == pytest.approx(4 * others * fraction)
    assert found[0][1] == 0


@pytest.mark.parametrize("layout", [
    Layout(), Layout(pp=4), Layout(pp=2, vp=3), Layout(pp=3, stage_layers=(5, 3, 3)),
    Layout(pp=2, vp=2, stage_layers=(3, 4, 2, 2)), Layout(pp=11), Layout(pp=5, vp=2),
])  # fmt: skip
@pytest.mark.parametrize("reserved", [(0, 0), (1, 1), (0, 1), (1, 2)])
def test_the_fewest_and_the_most_layers_of_a_chunk(
    layout: Layout, reserved: tuple[int, int]
) -> None:
    chunks = chunk_layers(11, layout, reserved)
    assert chunks is not None
    fewest, most = chunk_range(11, layout, reserved)
    assert (int(fewest), int(most)) == (min(chunks), max(chunks))


# ---------------------------------------------------------------- choices


def test_every_choice_says_what_it_keeps() -> None:
    assert set(KEPT) == set(RECOMPUTE)
    inputs = {Activation.LAYER_INPUT, Activation.BLOCK_INPUT}
    for choice in RECOMPUTE:
        layout = Layout(recompute=choice)
        kept = {activation: float(kept_share(layout, activation)) for activation in Activation}
        assert kept == dict.fromkeys(Activation, 1.0) | dict(KEPT[choice])
        # a layer can be recomputed from its input alone
        assert all(kept[activation] >= 1.0 for activation in inputs)
        whole = {kept[activation] for activation in set(Activation) - inputs}
        assert bool(recomputes_layers(layout)) == (len(whole) == 1 and whole != {1.0})
