"""Random `config.json`s of every architecture, small, with optional keys left out at random."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

PUBLISHED = Path(__file__).parents[2] / "data" / "huggingface"


def published(name: str) -> dict[str, Any]:
    """A published configuration."""
    found = json.loads((PUBLISHED / f"{name}.json").read_text("utf-8"))
    assert isinstance(found, dict)
    return found


def _optional(rng: Random, **choices: list[Any]) -> dict[str, Any]:
    """Each key with one of its values, or left out."""
    return {key: rng.choice(values) for key, values in choices.items() if rng.random() < 0.6}


def _usual(rng: Random, kind: str, **more: Any) -> dict[str, Any]:
    heads = rng.choice([2, 4, 6, 8])
    return {
        "model_type": kind,
        "num_hidden_layers": rng.randint(1, 7),
        "hidden_size": heads * rng.choice([8, 16]),
        "intermediate_size": 8 * rng.randint(2, 30),
        "num_attention_heads": heads,
        "vocab_size": rng.randint(100, 900),
        **_optional(rng, tie_word_embeddings=[True, False]),
        **more,
    }


def _kv(rng: Random, config: dict[str, Any]) -> dict[str, Any]:
    heads = config["num_attention_heads"]
    return {"num_key_value_heads": rng.choice([n for n in (1, 2, heads) if heads % n == 0])}


def _sparse(rng: Random, count: str, width: str | None) -> dict[str, Any]:
    experts = rng.randint(2, 6)
    found = {count: experts, "num_experts_per_tok": rng.randint(1, experts)}
    return found | ({width: 8 * rng.randint(1, 9)} if width else {})


FLAGS: dict[str, dict[str, list[Any]]] = {
    "llama": {"attention_bias": [True, False], "mlp_bias": [True, False], "head_dim": [8, 24]},
    "mistral": {"sliding_window": [None, 16], "head_dim": [8, 24]},
    "mixtral": {"sliding_window": [None, 16]},
    "qwen2": {
        "use_sliding_window": [True, False], "max_window_layers": [0, 2], "sliding_window": [9],
    },
    "qwen2_moe": {"decoder_sparse_step": [1, 2], "qkv_bias": [True, False]},
    "qwen3": {"attention_bias": [True, False], "head_dim": [8, 24]},
    "qwen3_moe": {"attention_bias": [True, False], "head_dim": [8, 24], "mlp_only_layers": [[]]},
    "deepseek_v2": {"n_shared_experts": [1, 2]},
    "deepseek_v3": {"n_shared_experts": [1, 2], "n_group": [1], "topk_group": [1]},
    "gpt_oss": {"attention_bias": [True, False], "head_dim": [8, 24]},
    "gpt_neox": {"attention_bias": [True, False], "use_parallel_residual": [True, False]},
    "gemma": {"attention_bias": [True, False], "head_dim": [8, 24]},
    "gemma2": {"attention_bias": [True, False], "head_dim": [8, 24]},
    "gemma3_text": {"attention_bias": [True, False], "head_dim": [8, 24], "sliding_window": [64]},
    "phi": {"qk_layernorm": [True, False], "partial_rotary_factor": [0.5]},
    "phi3": {"sliding_window": [None, 16], "head_dim": [8]},
    "phimoe": {"attention_bias": [True, False], "lm_head_bias": [True, False]},
}  # fmt: skip

TYPES = (*FLAGS, "gpt2", "falcon")


def random_config(rng: Random, kind: str) -> dict[str, Any]:
    """A configuration that transformers takes too."""
    if kind == "gpt2":
        heads = rng.choice([2, 4])
        return {
            "model_type": kind, "n_layer": rng.randint(1, 6), "n_embd": heads * 8, "n_head": heads,
            "n_positions": rng.randint(16, 64), "vocab_size": rng.randint(100, 900),
            **_optional(rng, n_inner=[None, 40], tie_word_embeddings=[True, False],
                        attn_pdrop=[0.0, 0.1], resid_pdrop=[0.0]),
        }  # fmt: skip
    if kind == "falcon":
        config = _usual(rng, kind)
        del config["intermediate_size"]
        return config | _optional(
            rng, bias=[True, False], multi_query=[True, False], parallel_attn=[True, False],
            new_decoder_architecture=[True, False], num_kv_heads=[2], ffn_hidden_size=[96],
            num_ln_in_parallel_attn=[1, 2], alibi=[False],
        )  # fmt: skip
    config = _usual(rng, kind, **_optional(rng, **FLAGS[kind]))
    if kind != "gpt_neox" and rng.random() < 0.7 and not kind.startswith("deepseek"):
        config |= _kv(rng, config)
    if kind in ("mistral", "mixtral", "phimoe", "gpt_oss", "gemma", "gemma2", "gemma3_text"):
        config |= _kv(rng, config)  # whose class default need not divide the heads
    if kind in ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"):
        config |= _kv(rng, config)
    if kind in ("mixtral", "phimoe", "gpt_oss"):
        config |= _sparse(rng, "num_local_experts", None)
    if kind in ("qwen2_moe", "qwen3_moe"):
        config |= _sparse(rng, "num_experts", "moe_intermediate_size")
        config["num_hidden_layers"] += 1
    if kind == "phi3":
        config["pad_token_id"] = 0  # the class's own is that of a vocabulary of 32,064
    if kind == "qwen2_moe":
        config["shared_expert_intermediate_size"] = 8 * rng.randint(1, 9)
    if kind.startswith("deepseek"):
        config |= _sparse(rng, "n_routed_experts", "moe_intermediate_size")
        config |= {
            "kv_lora_rank": 16, "q_lora_rank": rng.choice([None, 24]), "qk_nope_head_dim": 8,
            "qk_rope_head_dim": rng.choice([4, 8]), "v_head_dim": rng.choice([8, 12]),
            "num_key_value_heads": config["num_attention_heads"],
            "first_k_dense_replace": rng.randrange(config["num_hidden_layers"]),
        }  # fmt: skip
        config.setdefault("n_shared_experts", 1)
    return config
