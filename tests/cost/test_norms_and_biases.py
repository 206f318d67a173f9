"""Norms around blocks or shared by them, biases, sinks: time and memory by hand, all else alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from planner.cost import activations, model_states
from planner.cost.compute import RankShare, layer_times, ring_members
from planner.cost.context import CostContext
from planner.cost.model_states import stage_parameters
from planner.cost.stages import StageLayers, rank_stages
from planner.layouts.keys import CP_KINDS
from planner.layouts.layout import Layout
from planner.problem.blocks import DENSE
from tests.scenarios import NO_LIMIT, accelerator, context, model, topology, training

H, F, TOKENS, HBM = 32, 128, 64, 1e9


def on(**changes: Any) -> CostContext:
    """A part whose every kernel but matmuls waits for HBM."""
    part = accelerator(hbm_bytes_per_second=HBM, peak_flops={"bf16": NO_LIMIT})
    return context(topology=topology(accelerator=part), training=training(), model=model(**changes))


def forward(**changes: Any) -> float:
    layout = Layout(cp_kind=CP_KINDS[0])
    times = layer_times(on(**changes), DENSE, RankShare(1, 1, 1, 0, ring_members(layout)))
    return float(times.memory_bound.forward)


def kept(**changes: Any) -> float:
    return float(activations.layer_activations(on(**changes), Layout(), DENSE).kept)


def test_each_norm_is_read_and_written_once() -> None:
    """Two passes of an element of two bytes; two norms, four, or one."""
    norm = 2 * 2 * TOKENS * H / HBM
    assert forward(block_norms="around") - forward() == pytest.approx(2 * norm, rel=1e-9)
    assert forward() - forward(block_norms="shared") == pytest.approx(norm, rel=1e-9)


def test_norms_keep_their_inputs() -> None:
    """Those after blocks what the blocks gave; a shared one neither a residual between blocks nor
    a second input of matmuls."""
    element = 2 * TOKENS * H
    assert kept(block_norms="around") - kept() == pytest.approx(2 * element)
    assert kept() - kept(block_norms="shared") == pytest.approx(2 * element)


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"biases": ("qkv",)}, 8 * 3 * H),
        ({"biases": ("attention_output", "mlp")}, 8 * (H + F + H)),
        ({"biases": ("head",)}, 64),
        ({"biases": ("head",), "tied_embeddings": True}, 64 - 64 * H),
        ({"block_norms": "around"}, 8 * 2 * H),
        ({"block_norms": "shared"}, -8 * H),
        ({"qk_norm": True}, 8 * 2 * 8),
        ({"attention_sinks": True}, 8 * 4),
    ],
)  # fmt: skip
def test_parameters_of_the_one_rank_are_the_model_s(changes: dict[str, Any], more: int) -> None:
    ctx = context(model=model(**changes))
    assert ctx.model.num_parameters - model().num_parameters == more
    stages = rank_stages(ctx, Layout(), StageLayers(np.array([0]), np.array([8])))
    held = stage_parameters(ctx, Layout(), stages)
    assert float(np.ravel(held.dense)[0]) == ctx.model.num_parameters


def test_key_value_biases_are_copied_with_their_heads() -> None:
    """Over four ranks of two key/value heads each head's biases, 8 of keys and 8 of values, are
    on two."""
    plain = context(model=model(num_key_value_heads=2))
    biased = context(model=model(num_key_value_heads=2, biases=("qkv",)))
    more = float(
        model_states.layer_parameters(biased, 4, DENSE)
        - model_states.layer_parameters(plain, 4, DENSE)
    )
    assert more == (H + 2 * 2 * 8) + 2 * 2 * 8


def test_what_a_model_does_not_have_changes_nothing() -> None:
    spelt = {"block_norms": "before", "biases": (), "attention_sinks": False}
    assert forward(**spelt) == forward() and kept(**spelt) == kept()
