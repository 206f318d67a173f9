"""What decoder layers are made of: kinds of layers, and the matmuls of their blocks on one rank.

A transformer has one kind of layer, or two: dense ones and ones with experts. A model with a layer
pattern has one kind for each letter. Multi-token prediction layers count as layers of the kinds
they are made of, on the last stage. Which layers each stage holds is said in `planner.cost.stages`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from planner.layouts.numeric import Numeric
from planner.problem.blocks import Block, Blocks
from planner.problem.model import Model


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers alike: the blocks they are made of, and their share of all layers."""

    blocks: Blocks
    share: float

    @property
    def has_experts(self) -> bool:
        """Whether one of the blocks is a mixture of experts."""
        return "experts" in self.blocks


def layer_kinds(model: Model) -> tuple[LayerKind, ...]:
    """The model's kinds of layers, dense ones before those with experts; shares sum to 1."""
    counts, total = counts_by_blocks(model), num_layers(model)
    return tuple(LayerKind(blocks, count / total) for blocks, count in counts.items())


def counts_by_blocks(model: Model) -> dict[Blocks, int]:
    """Layers of every kind that a step passes."""
    counts = dict(model.layers_by_blocks)
    for blocks, count in model.prediction_blocks.items() if model.mtp_layers else ():
        counts[blocks] = counts.get(blocks, 0) + model.mtp_layers * count
    return counts


def num_layers(model: Model) -> int:
    """Layers that a step passes: the model's and those of its prediction layers."""
    return model.num_layers + model.mtp_layers * sum(model.prediction_blocks.values())


def num_attention_layers(model: Model) -> int:
    """Layers with attention among those a step passes."""
    counts = counts_by_blocks(model)
    return sum(count for blocks, count in counts.items() if "attention" in blocks)


def share_of(kinds: Iterable[LayerKind], block: Block) -> float:
    """Share of all layers that have a block."""
    return sum(kind.share for kind in kinds if block in kind.blocks)


# ---------------------------------------------------------------- matmuls of a layer


@dataclass(frozen=True, slots=True)
class Matmul:
    """A weight matmul of a rank: tokens × inputs times inputs × outputs.

    unsharded: its weights are not cut over tp, and it runs on the tokens of a sequence-parallel
    shard; up_projection: one of latent attention's, which `recompute: mla_up_proj` recomputes.
    """

    outputs: Numeric
    inputs: Numeric
    unsharded: bool = False
    up_projection: bool = False


@dataclass(frozen=True, slots=True)
class KeyValueSizes:
    """Elements per token of all keys and of all values, over all tp ranks."""

    keys: Numeric
    values: Numeric

    @property
    def total(self) -> Numeric:
        """Elements per token of both."""
        return self.keys + self.values


def key_value_sizes(model: Model, tp: Numeric) -> KeyValueSizes:
    """Sizes over tp ranks, each of which has one key/value head at least: beyond their number
    heads are copied."""
    heads = np.maximum(model.num_key_value_heads, tp)
    return KeyValueSizes(heads * model.qk_head_dim, heads * model.v_head_dim)


def attention_matmuls(model: Model, tp: Numeric) -> tuple[Matmul, ...]:
    """The projections of one layer's attention on one of tp ranks."""
    h, heads = model.hidden_size, model.num_attention_heads
    query, output = heads * model.qk_head_dim, heads * model.v_head_dim
    projection = Matmul(h, output / tp)
    if model.mla is None:
        sizes = key_value_sizes(model, tp)
        return (Matmul((query + sizes.keys + sizes.values) / tp, h), projection)
    latent, rope = model.mla.kv_lora_rank, model.mla.qk_rope_head_dim
    nope = heads * model.mla.qk_nope_head_dim
    down = [Matmul(latent + rope, h, unsharded=True)]
    queries = Matmul(query / tp, h)
    if model.mla.q_lora_rank:
        down.append(Matmul(model.mla.q_lora_rank, h, unsharded=True))
        queries = Matmul(query / tp, model.mla.q_lora_rank, up_projection=True)
    keys_values = Matmul((nope + output) / tp, latent, up_projection=True)
    return (*down, queries, keys_values, projection)


def mlp_matmuls(
    model: Model, ffn: Numeric, tp: Numeric, width: int | None = None
) -> tuple[Matmul, ...]:
    """The two matmuls of a feed-forward block of this size cut tp ways; a gated one's up is two.

    Tokens have `width` elements, the hidden size unless given.
    """
    up, width = 2 * ffn if model.gated_mlp else ffn, width or model.hidden_size
    return (Matmul(up / tp, width), Matmul(width, ffn / tp))


def expert_matmuls(model: Model, ffn: Numeric, etp: Numeric) -> tuple[Matmul, ...]:
    """The two matmuls of routed experts, which see tokens in their latent where there is one."""
    return mlp_matmuls(model, ffn, etp, model.expert_hidden_size)


def mamba_matmuls(model: Model, tp: Numeric) -> tuple[Matmul, ...]:
    """The projections into and out of a state-space block on one of tp ranks."""
    if model.mamba is None:
        return ()
    mamba, h = model.mamba, model.hidden_size
    return (Matmul(mamba.projected_size / tp, h), Matmul(h, mamba.inner_size / tp))


def latent_matmuls(model: Model) -> tuple[Matmul, ...]:
    """Tokens down to the experts' latent and up again: every rank holds all of the weights."""
    if model.moe is None or model.moe.latent_size is None:
        return ()
    h, latent = model.hidden_size, model.moe.latent_size
    return (Matmul(latent, h, unsharded=True), Matmul(h, latent, unsharded=True))


def shared_ffn(model: Model, blocks: Blocks) -> int:
    """Feed-forward size that every token of a layer passes: the MLP's, or shared experts'."""
    if "mlp" in blocks:
        return model.ffn_hidden_size
    return model.shared_ffn_hidden_size if "experts" in blocks else 0


def layer_matmuls(model: Model, blocks: Blocks, tp: Numeric) -> tuple[Matmul, ...]:
    """Weight matmuls of one layer on one of tp ranks, but for its router and routed experts."""
    matmuls: tuple[Matmul, ...] = ()
    if "mamba" in blocks:
        matmuls = mamba_matmuls(model, tp)
    if "attention" in blocks:
        matmuls = (*matmuls, *attention_matmuls(model, tp))
    ffn = shared_ffn(model, blocks)
    if ffn:
        matmuls = (*matmuls, *mlp_matmuls(model, ffn, tp))
    return (*matmuls, *latent_matmuls(model)) if "experts" in blocks else matmuls
