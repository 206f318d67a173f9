"""What decoder layers are made of: kinds of layers, and the matmuls of their parts on one rank.

A model has one kind of layer, or two: dense ones and ones with experts. Multi-token prediction
layers count as layers of the last kind, on the last stage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.cost.pipeline import Reserved, layers_by_stage, leading_layers, stages
from planner.layout import Layout, LayoutLike, Numeric
from planner.problem.model import Model


@dataclass(frozen=True, slots=True)
class Matmul:
    """A weight matmul of a rank: tokens × inputs times inputs × outputs.

    `whole` ones are not cut over tp and run on the tokens of a sequence-parallel shard;
    `up_projection` marks what recomputing latent attention's up-projections runs again.
    """

    outputs: Numeric
    inputs: Numeric
    whole: bool = False
    up_projection: bool = False


def key_value_sizes(model: Model, tp: Numeric) -> tuple[Numeric, Numeric]:
    """Elements of all keys and of all values per token over tp ranks; heads replicate beyond kv."""
    heads = np.maximum(model.num_key_value_heads, tp)
    return heads * model.qk_head_dim, heads * model.v_head_dim


def attention_matmuls(model: Model, tp: Numeric) -> tuple[Matmul, ...]:
    """The projections of one layer's attention on one of tp ranks."""
    h, heads = model.hidden_size, model.num_attention_heads
    query, output = heads * model.qk_head_dim, heads * model.v_head_dim
    projection = Matmul(h, output / tp)
    if model.mla is None:
        key, value = key_value_sizes(model, tp)
        return (Matmul((query + key + value) / tp, h), projection)
    latent, rope = model.mla.kv_lora_rank, model.mla.qk_rope_head_dim
    nope = heads * model.mla.qk_nope_head_dim
    down = [Matmul(latent + rope, h, whole=True)]
    queries = Matmul(query / tp, h)
    if model.mla.q_lora_rank:
        down.append(Matmul(model.mla.q_lora_rank, h, whole=True))
        queries = Matmul(query / tp, model.mla.q_lora_rank, up_projection=True)
    keys_values = Matmul((nope + output) / tp, latent, up_projection=True)
    return (*down, queries, keys_values, projection)


def mlp_matmuls(model: Model, ffn: Numeric, tp: Numeric) -> tuple[Matmul, ...]:
    """The two matmuls of a feed-forward block of this size cut tp ways; a gated one's up is two."""
    up = 2 * ffn if model.gated_mlp else ffn
    return (Matmul(up / tp, model.hidden_size), Matmul(model.hidden_size, ffn / tp))


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers alike: whether they have experts, and their share of all layers."""

    experts: bool
    share: float


def layer_kinds(model: Model) -> tuple[LayerKind, ...]:
    """The model's kinds of layers, dense ones first; shares sum to 1."""
    total = model.num_layers + model.mtp_layers
    moe = model.num_moe_layers + (model.mtp_layers if model.moe else 0)
    counts = {False: total - moe, True: moe}
    return tuple(LayerKind(experts, count / total) for experts, count in counts.items() if count)


def num_layers(model: Model) -> int:
    """Layers that a step passes: the model's and its prediction layers."""
    return model.num_layers + model.mtp_layers


def model_stages(model: Model, layout: LayoutLike, reserved: Reserved) -> tuple[Numeric, Numeric]:
    """Stages that can be the slowest or the fullest and the model's layers on them: (S, …) each."""
    leading = model.moe.num_dense_layers if model.moe else 0
    return stages(model.num_layers, layout, reserved, leading)


def model_layers_by_stage(model: Model, layout: Layout, reserved: Reserved) -> list[int]:
    """The model's layers on every stage of one layout."""
    return layers_by_stage(model.num_layers, layout, reserved)


def layers_by_kind(
    model: Model, layout: LayoutLike, stage: Numeric, layers: Numeric, reserved: Reserved
) -> tuple[Numeric, ...]:
    """Layers of each kind on stages that hold `layers` of the model's, shapes as given.

    Leading dense layers sit where the model's first layers do, prediction layers on the last stage;
    dense layers between those with experts are spread evenly.
    """
    last = model.mtp_layers * (stage == layout.pp - 1) if model.mtp_layers else 0
    if model.moe is None:
        return (layers + last,)
    dense = leading_layers(
        model.moe.num_dense_layers,
        model.num_layers,
        layout,
        stage,
        layers,
        reserved,
    )
    moe = (layers - dense) / model.moe.layer_period
    by_kind = {False: layers - moe, True: moe + last}
    return tuple(by_kind[kind.experts] for kind in layer_kinds(model))
