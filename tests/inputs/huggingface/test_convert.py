"""`config.json` in the planner's words: each family's pitfalls, what is said, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from planner.errors import InputError
from planner.inputs.huggingface.convert import Converted, convert
from planner.inputs.huggingface.families import BY_TYPE, FAMILIES
from planner.inputs.huggingface.keys import APPROXIMATED, IGNORED, OTHERS, REASONS
from planner.inputs.json_text import read_json
from planner.inputs.values import from_tree
from planner.problem.blocks import MLA, MoE
from planner.problem.model import Model
from tests.inputs.huggingface.configs import published


def converted(config: dict[str, Any]) -> Converted:
    return convert(read_json(json.dumps(config, indent=1), "folder/config.json"))


def model(config: dict[str, Any]) -> Model:
    return from_tree(converted(config).tree, Model, {})


def changed(name: str, **keys: Any) -> dict[str, Any]:
    """A published configuration with other keys; those of `...` are left out."""
    config = published(name) | keys
    return {key: value for key, value in config.items() if value is not ...}


def refusal(config: dict[str, Any]) -> InputError:
    with pytest.raises(InputError) as caught:
        model(config)
    assert caught.value.path == "folder/config.json"
    return caught.value


# ---------------------------------------------------------------- biases, norms, heads


def test_llama_s_two_kinds_of_biases() -> None:
    plain = model(changed("llama-3-8b"))
    attention = model(changed("llama-3-8b", attention_bias=True))
    both = model(changed("llama-3-8b", attention_bias=True, mlp_bias=True))
    assert plain.biases == () and not plain.linear_bias
    assert attention.biases == ("qkv", "attention_output")
    assert attention.num_parameters - plain.num_parameters == 32 * (4096 + 2 * 1024 + 4096)
    assert both.linear_bias and both.biases == ()
    assert both.num_parameters - attention.num_parameters == 32 * (2 * 14336 + 4096)


def test_absent_key_value_heads_are_all_heads() -> None:
    for absent in (..., None):
        found = converted(changed("llama-3-8b", num_key_value_heads=absent))
        assert from_tree(found.tree, Model, {}).num_key_value_heads == 32
        assert ("num_key_value_heads", "32 (num_attention_heads), transformers' default") in [
            (remark.key, remark.text) for remark in found.defaults
        ]


def test_heads_wider_than_their_share_of_the_hidden_size() -> None:
    assert model(changed("mistral-nemo-12b")).head_dim == 128
    assert model(changed("mistral-nemo-12b", head_dim=...)).head_dim == 5120 // 32
    assert model(changed("qwen3-8b", head_dim=...)).head_dim == 128  # the class's own default
    assert model(changed("gemma-7b", head_dim=...)).head_dim == 256


def test_qwen2_has_biases_of_queries_keys_and_values_alone() -> None:
    assert model(changed("qwen2.5-7b")).biases == ("qkv",)
    assert model(changed("qwen1.5-moe-a2.7b", qkv_bias=False)).biases == ()


def test_tied_embeddings_where_the_file_is_silent() -> None:
    """Classes differ: Llama's are two matrices, Gemma's, GPT-2's and Falcon's one."""
    silent = {"llama-3-8b": False, "mistral-7b-v0.1": False, "qwen3-8b": False, "gemma-7b": True,
              "gpt2": True, "falcon-7b": True, "gpt-neox-20b": False}  # fmt: skip
    for name, tied in silent.items():
        found = converted(changed(name, tie_word_embeddings=...))
        assert from_tree(found.tree, Model, {}).tied_embeddings is tied, name
        assert "tie_word_embeddings" in [remark.key for remark in found.defaults]


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gpt-oss-120b"])
def test_gpt_oss_has_biases_sinks_and_clamps(name: str) -> None:
    """transformers, models/gpt_oss/modeling_gpt_oss.py: of experts, router and attention; the
    activation clamps at 7."""
    found = model(changed(name))
    assert found.attention_sinks and found.clamped_activation
    assert all(found.has_bias(at) for at in ("qkv", "attention_output", "mlp", "router"))
    assert not model(changed("mixtral-8x7b")).clamped_activation


def test_gpt2_has_learned_positions_biases_and_dropout() -> None:
    gpt2 = model(changed("gpt2"))
    assert (gpt2.num_position_embeddings, gpt2.ffn_hidden_size) == (1024, 3072)
    assert gpt2.linear_bias and gpt2.dropout and gpt2.tied_embeddings and not gpt2.gated_mlp
    assert not model(changed("gpt2", attn_pdrop=0.0, resid_pdrop=0.0)).dropout
    assert model(changed("gpt2", attn_pdrop=..., resid_pdrop=0.0)).dropout  # 0.1 by default
    assert model(changed("gpt2", n_inner=1000)).ffn_hidden_size == 1000


def test_falcon_s_heads_and_norms_of_three_ages() -> None:
    seven, forty = model(changed("falcon-7b")), model(changed("falcon-40b"))
    assert (seven.num_key_value_heads, seven.block_norms) == (1, "shared")
    assert (forty.num_key_value_heads, forty.block_norms) == (8, "before")
    one = model(changed("falcon-40b", num_ln_in_parallel_attn=1))
    assert one.block_norms == "shared"
    old = model(changed("falcon-rw-1b"))
    assert (old.num_key_value_heads, old.block_norms, old.linear_bias) == (32, "before", True)
    names = {"num_hidden_layers": ..., "num_attention_heads": ..., "n_layer": 32, "n_head": 71}
    older = model(changed("falcon-7b", model_type="RefinedWebModel", **names))
    assert older.replace(source=seven.source) == seven


def test_phi_has_one_norm_and_a_bias_of_its_head() -> None:
    phi = model(changed("phi-2"))
    assert (phi.block_norms, phi.biases, phi.linear_bias) == ("shared", ("head",), True)
    normed = model(changed("phi-2", qk_layernorm=True))
    assert normed.num_parameters - phi.num_parameters == 32 * 2 * 2 * 80


def test_gemma_2_and_3_have_norms_around_blocks() -> None:
    assert model(changed("gemma-7b")).block_norms == "before"
    for name in ("gemma-2-9b", "gemma-3-1b"):
        assert model(changed(name)).block_norms == "around"
    assert model(changed("gemma-3-1b")).qk_norm


# ---------------------------------------------------------------- windows


@pytest.mark.parametrize(
    ("name", "keys", "window", "layers"),
    [
        ("mistral-7b-v0.1", {}, 4096, None),
        ("mistral-7b-v0.1", {"sliding_window": None}, None, None),
        ("mistral-7b-v0.1", {"sliding_window": ...}, 4096, None),  # the class's own default
        ("mixtral-8x7b", {}, None, None),
        ("mixtral-8x7b", {"sliding_window": 100}, 100, None),
        ("qwen2.5-7b", {}, None, None),  # the flag is off, whatever the size
        ("qwen2.5-7b", {"use_sliding_window": True, "max_window_layers": 21}, 131072, 7),
        ("qwen2.5-7b", {"use_sliding_window": True, "max_window_layers": 0}, 131072, None),
        ("qwen2.5-7b", {"use_sliding_window": True}, None, None),  # none above the 28th of 28
        ("gpt-oss-20b", {}, 128, 12),
        ("gpt-oss-20b", {"layer_types": ...}, 128, 12),
        ("gemma-2-9b", {}, 4096, 21),
        ("gemma-3-1b", {}, 512, 22),  # layers 6, 12, 18, 24 see everything
        ("gemma-3-1b", {"sliding_window_pattern": 2}, 512, 13),
        ("gemma-3-1b", {"layer_types": ["full_attention"] * 25 + ["sliding_attention"]}, 512, 1),
        ("phi-3-mini-4k", {}, 2047, None),
        ("phi-4", {}, None, None),
    ],
)  # fmt: skip
def test_which_layers_see_a_window(
    name: str, keys: dict[str, Any], window: int | None, layers: int | None
) -> None:
    found = model(changed(name, **keys))
    assert (found.sliding_window, found.num_windowed_layers) == (window, layers)


def test_kinds_of_layers_that_cannot_be_said() -> None:
    kinds = ["sliding_attention", "linear_attention"] * 12
    error = refusal(changed("gpt-oss-20b", layer_types=kinds))
    assert "layer_types.1: linear_attention layers cannot be planned" in str(error)
    error = refusal(changed("gpt-oss-20b", layer_types=["full_attention"]))
    assert "1 types for 24 layers" in str(error)


# ---------------------------------------------------------------- experts, latent attention


def test_experts_of_each_family() -> None:
    assert model(changed("mixtral-8x7b")).moe == MoE(
        num_experts=8, top_k=2, expert_ffn_hidden_size=14336
    )
    assert model(changed("qwen3-30b-a3b")).moe == MoE(
        num_experts=128, top_k=8, expert_ffn_hidden_size=768
    )
    assert model(changed("qwen1.5-moe-a2.7b")).moe == MoE(
        num_experts=60, top_k=4, expert_ffn_hidden_size=1408, num_shared_experts=1,
        shared_expert_ffn_hidden_size=5632, shared_expert_gate=True,
    )  # fmt: skip
    assert model(changed("deepseek-v3")).moe == MoE(
        num_experts=256, top_k=8, expert_ffn_hidden_size=2048, num_shared_experts=1,
        num_dense_layers=3,
    )  # fmt: skip
    oss = model(changed("gpt-oss-20b"))
    assert oss.biases == ("router",) and oss.linear_bias and oss.attention_sinks


def test_layers_without_experts_in_qwen() -> None:
    second = model(changed("qwen3-30b-a3b", decoder_sparse_step=2))
    assert second.num_moe_layers == 24
    first = model(changed("qwen3-30b-a3b", mlp_only_layers=[1, 0]))
    assert first.moe is not None and first.moe.num_dense_layers == 2
    for keys in ({"mlp_only_layers": [5]}, {"mlp_only_layers": [0], "decoder_sparse_step": 2}):
        error = refusal(changed("qwen3-30b-a3b", **keys))
        assert error.key == "mlp_only_layers"
        assert "dense layers between those with experts cannot be planned" in error.message
    assert refusal(changed("qwen3-30b-a3b", mlp_only_layers=[0.5])).key == "mlp_only_layers.0"


def test_deepseek_s_latent_attention_and_prediction_layer() -> None:
    v3, lite = model(changed("deepseek-v3")), model(changed("deepseek-v2-lite"))
    assert (v3.mtp_layers, lite.mtp_layers) == (1, 0)
    assert v3.mla == MLA(
        q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
        v_head_dim=128,
    )  # fmt: skip
    assert lite.mla is not None and lite.mla.q_lora_rank is None
    assert refusal(changed("deepseek-v3", moe_layer_freq=2)).key == "moe_layer_freq"
    error = refusal(changed("deepseek-v3", attention_bias=True))
    assert error.key == "attention_bias" and "latent attention" in error.message


# ---------------------------------------------------------------- what is said


def test_what_is_costed_roughly_is_said() -> None:
    said = {remark.key for remark in converted(changed("gemma-2-9b")).approximate}
    assert said == {"attn_logit_softcapping", "final_logit_softcapping"}
    said = {remark.key for remark in converted(changed("gpt-neox-20b")).approximate}
    assert said == {"rotary_pct", "use_parallel_residual"}
    quantised = converted(changed("deepseek-v3"))
    texts = {remark.key: remark.text for remark in quantised.approximate}
    assert "precision of training is the scenario's" in texts["quantization_config"]
    assert "n_group" in texts and "e_score_correction_bias" in texts
    assert quantised.quantised


def test_keys_without_a_cost_are_named_with_the_reason() -> None:
    found = converted(changed("llama-3-8b", bos_token_id=1, initializer_range=0.02))
    assert found.ignored["token ids, vocabulary"] == ("bos_token_id",)
    assert found.ignored["initialization"] == ("initializer_range",)
    assert found.unknown == ()


def test_unknown_keys_are_never_dropped() -> None:
    found = converted(changed("llama-3-8b", attention_temperature_tuning=True, foo=None))
    assert found.unknown == ("attention_temperature_tuning", "foo")


def test_a_class_without_the_lm_head_is_said() -> None:
    found = converted(changed("llama-3-8b", architectures=["LlamaForSequenceClassification"]))
    assert [remark.key for remark in found.approximate] == ["architectures"]


def test_the_text_model_of_a_larger_one() -> None:
    found = converted(changed("gemma-3-4b"))
    assert found.architecture == "gemma3_text"
    assert found.aside[0].text.endswith("left aside: mm_tokens_per_image, vision_config")
    inside = {"model_type": "mistral3", "text_config": published("mistral-nemo-12b")}
    assert model(inside).num_parameters == 12_247_782_400
    error = refusal({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}})
    assert error.key == "text_config.num_hidden_layers"


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ({"_name_or_path": "meta-llama/Meta-Llama-3-8B"}, "meta-llama-3-8b"),
        ({"_name_or_path": "./output/checkpoint"}, "folder"),
        ({"_name_or_path": "/data/Secret Place"}, "folder"),
        ({}, "folder"),
    ],
)  # fmt: skip
def test_names(keys: dict[str, Any], name: str) -> None:
    found = model(changed("llama-3-8b", **keys))
    assert found.name == name
    assert "/data" not in found.source and "Secret" not in found.source


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("keys", "key", "said"),
    [
        ({"hidden_size": ...}, "hidden_size", "this key is missing"),
        ({"num_hidden_layers": None}, "num_hidden_layers", "this key is missing"),
        ({"hidden_size": -4096}, "hidden_size", "is negative"),
        ({"hidden_size": 0}, "hidden_size", "is too small"),
        ({"hidden_size": 4096.0}, "hidden_size", "4096.0 is not an integer"),
        ({"hidden_size": "4096"}, "hidden_size", "'4096' is not an integer"),
        ({"hidden_size": True}, "hidden_size", "true is not an integer"),
        ({"hidden_size": [4096]}, "hidden_size", "a list is not an integer"),
        ({"hidden_size": 10**15}, "hidden_size", "is too large"),
        ({"num_hidden_layers": 5000}, "num_hidden_layers", "is too large"),
        ({"num_key_value_heads": 5}, "num_key_value_heads", "is not a multiple"),
        ({"hidden_size": 4097}, "num_attention_heads", "is not a multiple"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings", "1 is not true or false"),
        ({"attention_dropout": -0.1}, "attention_dropout", "no such number"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder", "encoder-decoder"),
        ({"add_cross_attention": True}, "add_cross_attention", "cross attention"),
        ({"model_type": 3}, "model_type", "3 is not text"),
        ({"model_type": ...}, "model_type", "this key is missing"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused_at_their_place(keys: dict[str, Any], key: str, said: str) -> None:
    config = changed("llama-3-8b", architectures=..., **keys)
    error = refusal(config)
    assert error.key == key and said in error.message and error.allowed
    if config.get(key) is not None:
        assert error.line == list(config).index(key) + 2


def test_two_names_of_one_thing_must_agree() -> None:
    error = refusal(changed("gpt-oss-20b", experts_per_token=8))
    assert "8 contradicts num_experts_per_tok 4" in error.message


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("t5", "encoder with a decoder"), ("bert", "it is an encoder"),
        ("mamba", "of types that a model file cannot express"), ("rwkv", "cannot express"),
        ("qwen3_next", "gated linear attention"), ("llama4_text", "models/llama4-scout.yaml ships"),
        ("nemotron_h", "write layer_pattern and mamba by hand"), ("zork", "no table says"),
    ],
)  # fmt: skip
def test_other_architectures_are_refused_with_what_is_missing(name: str, said: str) -> None:
    error = refusal(changed("llama-3-8b", model_type=name))
    assert said in error.message and "docs/models.md" in error.message
    assert error.allowed is not None and "deepseek_v3" in error.allowed


def test_a_misspelt_architecture_has_a_nearest_one() -> None:
    assert refusal(changed("llama-3-8b", model_type="lama")).nearest == "llama"


# ---------------------------------------------------------------- the tables


def test_tables_do_not_overlap() -> None:
    assert sum(map(len, IGNORED.values())) == len(REASONS)
    assert not set(REASONS) & set(APPROXIMATED)
    assert not set(OTHERS) & set(BY_TYPE)
    assert sum(len(family.types) for family in FAMILIES) == len(BY_TYPE)
