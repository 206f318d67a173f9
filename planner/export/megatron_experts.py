"""Megatron-LM arguments of models with experts, latent attention and prediction layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import ExportError
from planner.problem.model import MLA, Model, MoE

DISPATCHER_FLAGS: Mapping[str, tuple[str, ...]] = {
    "alltoall": ("--moe-token-dispatcher-type alltoall",),
    "allgather": ("--moe-token-dispatcher-type allgather",),
    "flex": ("--moe-token-dispatcher-type flex", "--moe-flex-dispatcher-backend hybridep"),
}


def expert_model_flags(model: Model) -> list[str]:
    """What a model has beside a dense one's layers."""
    flags: list[str] = []
    if model.moe is not None:
        flags += _experts(model, model.moe)
    if model.mla is not None:
        flags += _latent_attention(model.mla)
    if model.qk_norm:
        flags.append("--qk-layernorm")
    if model.mtp_layers:
        flags.append(f"--mtp-num-layers {model.mtp_layers}")
    return flags


def _experts(model: Model, moe: MoE) -> list[str]:
    flags = [
        f"--num-experts {moe.num_experts}",
        f"--moe-router-topk {moe.top_k}",
        f"--moe-ffn-hidden-size {moe.expert_ffn_hidden_size}",
        "--moe-grouped-gemm",
    ]
    if moe.num_shared_experts:
        flags.append(f"--moe-shared-expert-intermediate-size {model.shared_ffn_hidden_size}")
    dense = model.num_layers - model.num_moe_layers
    if dense and moe.layer_period == 1:
        flags.append(f"--moe-layer-freq ([0]*{dense}+[1]*{model.num_moe_layers})")
    elif dense and not moe.num_dense_layers:
        rest = model.num_layers - moe.layer_period * model.num_moe_layers
        period = f"([0]*{moe.layer_period - 1}+[1])*{model.num_moe_layers}"
        flags.append(f"--moe-layer-freq ({period}+[0]*{rest})")
    elif dense:
        raise ExportError(
            "dense layers both before and between those with experts are not exported; "
            "expressible: num_dense_layers 0, or layer_period 1"
        )
    return flags


def _latent_attention(mla: MLA) -> list[str]:
    return [
        "--multi-latent-attention",
        *([f"--q-lora-rank {mla.q_lora_rank}"] if mla.q_lora_rank else []),
        f"--kv-lora-rank {mla.kv_lora_rank}",
        f"--qk-head-dim {mla.qk_nope_head_dim}",
        f"--qk-pos-emb-head-dim {mla.qk_rope_head_dim}",
        f"--v-head-dim {mla.v_head_dim}",
    ]


def expert_layout_flags(layout: Mapping[str, Any], model: Model) -> list[str]:
    """Where experts live and how tokens reach them; the expert-tensor degree is always said.

    Left out, Megatron would take tp for it.
    """
    if model.moe is None:
        return []
    if layout["etp"] > 1 and model.linear_bias:
        raise ExportError(
            "Megatron shards experts over etp only without biases; expressible: etp=1"
        )
    flags = [
        f"--expert-model-parallel-size {layout['ep']}",
        f"--expert-tensor-parallel-size {layout['etp']}",
    ]
    flags += DISPATCHER_FLAGS[layout["dispatcher"] or "alltoall"]
    if "ep" in layout["overlap"].split("+") and layout["ep"] > 1:
        flags.append("--overlap-moe-expert-parallel-comm")
    return flags
