"""Layer patterns and state-space layers: parameters by hand, what cannot be."""

from __future__ import annotations

import pytest

from planner.errors import InputError
from planner.inputs.values import load, parse
from planner.problem.blocks import DENSE, LETTERS, SPARSE, layers_by_block
from planner.problem.model import Model
from tests.expert_scenarios import experts, sparse_model
from tests.hybrid_scenarios import PATTERN, hybrid_model, mamba
from tests.scenarios import model

H = 32
MAMBA = H * (2 * 64 + 2 * 2 * 4 + 8) + 64 * H + (64 + 16) * 5 + 3 * 8 + 64 + H
ATTENTION = H * (32 + 2 * 32) + 32 * H + H
MLP = 2 * H * 128 + H
AROUND = H * 8 + H  # a router and a norm
EXPERTS = 8 * 2 * H * 64
ENDS = 2 * 64 * H + H

HYBRID = """
num_layers: 4
layer_pattern: MM*-
mamba: {state_size: 16, num_heads: 32, head_dim: 64, num_groups: 8}
"""


# ---------------------------------------------------------------- parameters


def test_parameters_of_each_block_by_hand() -> None:
    """In: gate and x of 64, B and C of 2 groups of 4, 8 steps; a convolution of four taps and a
    bias over x, B and C; a decay, a skip and a bias a head; the gated norm; out."""
    toy = hybrid_model()
    found = {block: toy.num_block_parameters(block) for block in LETTERS.values()}
    assert found == {"mamba": MAMBA, "attention": ATTENTION, "mlp": MLP, "experts": AROUND}
    total = 3 * MAMBA + ATTENTION + 2 * MLP + 2 * (AROUND + EXPERTS)
    assert toy.num_parameters == total + ENDS
    assert toy.num_active_parameters == toy.num_parameters - 2 * EXPERTS * 6 // 8


def test_one_block_a_layer_has_the_parameters_of_two() -> None:
    """Attention and MLP in turns are a dense model of half as many layers, experts likewise."""
    assert hybrid_model("*-*-*-*-").num_parameters == model(num_layers=4).num_parameters
    sparse = sparse_model(num_layers=4)
    assert hybrid_model("*E*E*E*E").num_parameters == sparse.num_parameters
    assert hybrid_model("*E*E*E*E").num_active_parameters == sparse.num_active_parameters


def test_layers_by_what_they_do() -> None:
    assert hybrid_model().layers_by_blocks == {
        ("mamba",): 3, ("attention",): 1, ("mlp",): 2, ("experts",): 2,
    }  # fmt: skip
    assert (hybrid_model().num_attention_layers, hybrid_model().num_moe_layers) == (1, 2)
    assert model().layers_by_blocks == {DENSE: 8}
    mixed = sparse_model(moe=experts(num_dense_layers=3))
    assert mixed.layers_by_blocks == {DENSE: 3, SPARSE: 5}
    assert layers_by_block("-E-") == {("mlp",): 2, ("experts",): 1}


def test_experts_on_a_latent_by_hand() -> None:
    """Two projections of every token; experts as wide as the latent; shared ones are not."""
    latent = experts(latent_size=16, num_shared_experts=1)
    toy = hybrid_model("*E", moe=latent)
    assert toy.num_expert_parameters == 8 * 2 * 16 * 64
    assert toy.num_block_parameters("experts") == AROUND + 2 * H * 64 + 2 * H * 16
    pair = sparse_model(moe=latent)
    assert pair.num_parameters_of(SPARSE) == ATTENTION + toy.num_block_parameters("experts")


def test_prediction_layers_are_made_of_their_own_pattern() -> None:
    toy = hybrid_model(mtp_layers=1, mtp_pattern="*E")
    join = 2 * H * H + 3 * H
    assert toy.num_prediction_parameters == join + ATTENTION + AROUND + EXPERTS
    assert toy.num_parameters == hybrid_model().num_parameters
    assert (toy.num_reserved_layers, sparse_model(mtp_layers=1).num_reserved_layers) == (0, 3)


def test_nemotron_3_nano_by_hand() -> None:
    """Matrix by matrix from the released config.json."""
    found = load("nemotron-3-nano", "model", Model)
    h, inner, groups = 2688, 64 * 64, 8 * 128
    conv = inner + 2 * groups
    scans = h * (inner + conv + 64) + inner * h + conv * 5 + 3 * 64 + inner + h
    attention = h * (32 + 2 * 2) * 128 + 32 * 128 * h + h
    expert = 2 * h * 1856
    around = 128 * h + 2 * h * 3712 + h
    total = 23 * scans + 6 * attention + 23 * (128 * expert + around) + 2 * 131072 * h + h
    assert found.num_parameters == total
    assert found.num_active_parameters == total - 23 * 122 * expert


# ---------------------------------------------------------------- what cannot be


@pytest.fixture
def hybrid(texts: dict[str, str]) -> str:
    kept = [line for line in texts["model.yaml"].splitlines() if "num_layers" not in line]
    return "\n".join(kept) + HYBRID


def test_a_file_with_a_pattern(hybrid: str) -> None:
    found = parse(hybrid, "model.yaml", Model)
    assert found.mamba is not None
    assert (found.mamba.conv_kernel, found.mamba.chunk_size) == (4, 128)
    assert found.layers_by_blocks == {("mamba",): 2, ("attention",): 1, ("mlp",): 1}


MOE = "moe: {num_experts: 8, top_k: 2, expert_ffn_hidden_size: 64"


@pytest.mark.parametrize(
    ("old", "new", "key", "said"),
    [
        ("MM*-", "MM*x", "layer_pattern", "M (mamba), * (attention), - (mlp), E (experts)"),
        ("MM*-", "mm*-", "layer_pattern", "did you mean 'MM*-'"),
        ("MM*-", '""', "layer_pattern", "has no letter"),
        ("MM*-", "MM*", "layer_pattern", "4 letters, or num_layers 3"),
        ("MM*-", "MM*E", "layer_pattern", "moe given, or no E"),
        ("MM*-", '"**--"', "mamba", "a layer_pattern with M, or no mamba"),
        ("layer_pattern: MM*-\n", "", "mamba", "layer_pattern"),
        ("num_groups: 8", "num_groups: 5", "mamba.num_groups", "1, 2, 4, 8, 16, 32"),
        ("num_groups: 8", "num_groups: 0", "mamba.num_groups", ""),
        ("state_size: 16, ", "", "mamba.state_size", ""),
        ("num_groups: 8", "groups: 8", "mamba.groups", "num_groups"),
        ("MM*-", f"MM*-\n{MOE}}}", "moe", "a layer_pattern with E, or no moe"),
        ("MM*-", f"MME*\n{MOE}, num_dense_layers: 1}}", "moe.num_dense_layers", ""),
        ("MM*-", f"MME*\n{MOE}, layer_period: 2}}", "moe.layer_period", ""),
        ("MM*-", f"MME*\n{MOE}, latent_size: 0}}", "moe.latent_size", ""),
        ("MM*-", "MM*-\nmtp_layers: 1", "mtp_pattern", "'*E'"),
        ("MM*-", "MM*-\nmtp_pattern: M-", "mtp_pattern", ""),
        ("MM*-", "MM*-\nmtp_layers: 1\nmtp_pattern: E", "mtp_pattern", "moe given"),
        ("MM*-", "MM*-\nsliding_window: 8\nnum_windowed_layers: 2", "num_windowed_layers", "1"),
    ],
)  # fmt: skip
def test_wrong_patterns(old: str, new: str, key: str, said: str, hybrid: str) -> None:
    assert old in hybrid
    with pytest.raises(InputError) as caught:
        parse(hybrid.replace(old, new), "model.yaml", Model)
    assert caught.value.key == key, caught.value
    assert caught.value.line is not None
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["mamba", "mtp_pattern"])
def test_transformers_have_neither_state_space_layers_nor_their_patterns(name: str) -> None:
    values = {"mamba": mamba(), "mtp_pattern": "*-"}
    with pytest.raises(InputError, match="needs a layer_pattern"):
        model().replace(**{name: values[name]})


def test_pattern_of_the_tests_has_every_letter() -> None:
    assert set(PATTERN) == set(LETTERS)
