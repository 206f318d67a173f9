"""Megatron-LM's settings of a model: dimensions, experts, latent attention, prediction layers."""

from __future__ import annotations

from planner.frameworks.job import Job
from planner.frameworks.target import Settings, Target
from planner.problem.blocks import MoE
from planner.problem.model import Model

SIZES = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "head_dim")
SWITCHES = ("norm", "gated_mlp", "tied_embeddings", "linear_bias", "dropout", "qk_norm")
QKV = ("qkv",)
EXPERTS = ("num_experts", "top_k", "expert_ffn_hidden_size")
LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")

MODEL_KEYS = tuple(f"model.{name}" for name in (*SIZES, "vocab_size", *SWITCHES))


def model_refusals(model: Model) -> list[str]:
    """What of a model is not exported."""
    found = []
    if model.sliding_window:
        found.append(f"model {model.name}: windowed attention is not exported yet")
    if model.moe is not None and model.moe.num_dense_layers and model.moe.layer_period > 1:
        found.append(
            "dense layers both before and between those with experts are not exported; "
            "expressible: num_dense_layers 0, or layer_period 1"
        )
    if model.biases not in ((), QKV):
        found.append(
            f"Megatron gives biases to {', '.join(model.biases)} not alone; expressible: "
            "linear_bias, or biases [qkv]"
        )
    if model.block_norms != "before":
        found.append(f"norms {model.block_norms} blocks are not expressible; expressible: before")
    if model.attention_sinks or (model.moe and model.moe.shared_expert_gate):
        found.append("attention sinks and gates of shared experts are not exported yet")
    if model.mtp_layers and model.num_position_embeddings:
        found.append("prediction layers need rotary positions; expressible: mtp_layers 0")
    return found


def model_settings(job: Job, target: Target) -> Settings:
    """The model and its sequence."""
    model, training = job.scenario.model, job.scenario.training
    found: Settings = job.settings(target, *MODEL_KEYS, "training.sequence_length")
    if model.num_key_value_heads != model.num_attention_heads:
        found["--group-query-attention"] = True
        found |= job.settings(target, "model.num_key_value_heads")
    found["--max-position-embeddings"] = max(
        training.sequence_length, model.num_position_embeddings
    )
    learned = model.num_position_embeddings > 0
    found["--position-embedding-type"] = "learned_absolute" if learned else "rope"
    if model.biases == QKV:
        found["--add-qkv-bias"] = True
    if model.moe is not None:
        found |= job.settings(target, *(f"model.moe.{name}" for name in EXPERTS))
        found |= _experts(model, model.moe)
    if model.mla is not None:
        found["--multi-latent-attention"] = True
        found |= job.settings(target, *(f"model.mla.{name}" for name in LATENT))
    if model.mtp_layers:
        found |= job.settings(target, "model.mtp_layers")
    return found


def _experts(model: Model, moe: MoE) -> Settings:
    found: Settings = {"--moe-grouped-gemm": True}
    if moe.top_k == 1:  # the softmax of one logit would be 1
        found["--moe-router-pre-softmax"] = True
    if moe.num_shared_experts:
        found["--moe-shared-expert-intermediate-size"] = model.shared_ffn_hidden_size
    dense = model.num_layers - model.num_moe_layers
    if dense and moe.layer_period == 1:
        found["--moe-layer-freq"] = f"([0]*{dense}+[1]*{model.num_moe_layers})"
    elif dense:
        rest = model.num_layers - moe.layer_period * model.num_moe_layers
        period = f"([0]*{moe.layer_period - 1}+[1])*{model.num_moe_layers}"
        found["--moe-layer-freq"] = period + (f"+[0]*{rest}" if rest else "")
    return found
