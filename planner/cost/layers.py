"""What decoder layers are made of: kinds of layers, and the matmuls of their parts on one rank.

A transformer has one kind of layer, or two: dense ones and ones with experts. A model with a layer
pattern has one for each letter. Multi-token prediction layers count as layers of the kinds they are
made of, on the last stage.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from planner.cost.folds import Held, held, layers_by_rank, rank_stages
from planner.cost.pipeline import every_stage, first_layer, leading_layers
from planner.layouts.layout import Layout, LayoutLike, Numeric
from planner.layouts.stage_split import Reserved
from planner.problem.blocks import LETTERS, Block, Blocks
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
    """Tokens down to the experts' latent and up again: whole on every rank, of its own tokens."""
    if model.moe is None or model.moe.latent_size is None:
        return ()
    h, latent = model.hidden_size, model.moe.latent_size
    return (Matmul(latent, h, whole=True), Matmul(h, latent, whole=True))


def shared_ffn(model: Model, blocks: Blocks) -> int:
    """Feed-forward size that every token of a layer passes: the MLP's, or shared experts'."""
    if "mlp" in blocks:
        return model.ffn_hidden_size
    return model.shared_ffn_hidden_size if "experts" in blocks else 0


def layer_matmuls(model: Model, blocks: Blocks, tp: Numeric) -> tuple[Matmul, ...]:
    """Weight matmuls of one layer on one of tp ranks, but for its router and routed experts."""
    found: tuple[Matmul, ...] = ()
    if "mamba" in blocks:
        found = mamba_matmuls(model, tp)
    if "attention" in blocks:
        found = (*found, *attention_matmuls(model, tp))
    ffn = shared_ffn(model, blocks)
    if ffn:
        found = (*found, *mlp_matmuls(model, ffn, tp))
    return (*found, *latent_matmuls(model)) if "experts" in blocks else found


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers alike: the blocks they are made of, and their share of all layers."""

    blocks: Blocks
    share: float

    @property
    def experts(self) -> bool:
        """Whether they have experts."""
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
    """Layers that attend among those a step passes."""
    counts = counts_by_blocks(model)
    return sum(count for blocks, count in counts.items() if "attention" in blocks)


def share_of(kinds: Iterable[LayerKind], block: Block) -> float:
    """Share of all layers that have a block."""
    return sum(kind.share for kind in kinds if block in kind.blocks)


def model_stages(
    model: Model,
    layout: LayoutLike,
    reserved: Reserved,
    only_1f1b: bool = True,
    latest: bool = False,
) -> tuple[Numeric, Numeric]:
    """Stages that can be the fullest, or (`latest`) the one that the step waits for, and the
    model's layers on them: (S, …) each. Of a model with a layer pattern all are considered.

    only_1f1b: whether the software folds no pipelines (`planner.cost.folds`).
    """
    if model.layer_pattern is not None:
        return every_stage(model.num_layers, layout)
    leading = model.moe.num_dense_layers if model.moe else 0
    return rank_stages(model.num_layers, layout, reserved, leading, only_1f1b, latest)


def model_layers_by_stage(model: Model, layout: Layout, reserved: Reserved) -> list[int]:
    """The model's layers on every stage of one layout."""
    return layers_by_rank(model.num_layers, layout, reserved)


def held_stages(
    model: Model,
    layout: LayoutLike,
    stage: Numeric,
    layers: Numeric,
    reserved: Reserved,
    only_1f1b: bool,
) -> tuple[tuple[Held, tuple[Numeric, ...]], ...]:
    """The stages that ranks hold, and their layers of each kind, prediction layers among them."""
    parts = held(model.num_layers, layout, stage, layers, reserved, only_1f1b)
    return tuple((part, layers_of_kinds(model, part, reserved)) for part in parts)


def layers_by_kind(
    model: Model, layout: LayoutLike, stage: Numeric, layers: Numeric, reserved: Reserved
) -> tuple[Numeric, ...]:
    """Layers of each kind on stages, not folded, that hold `layers` of the model's."""
    ((_, by_kind),) = held_stages(model, layout, stage, layers, reserved, True)
    return by_kind


def layers_of_kinds(model: Model, part: Held, reserved: Reserved) -> tuple[Numeric, ...]:
    """Layers of each kind on a stage that is held.

    Leading dense layers sit where the model's first layers do, prediction layers on the last
    stage; dense layers between those with experts are spread evenly, those of a pattern as it says.
    """
    before: Numeric = 0
    if model.layer_pattern is not None:
        before = first_layer(model.num_layers, part.way, part.stage)
    elif model.moe is not None:
        before = leading_layers(
            model.moe.num_dense_layers,
            model.num_layers,
            part.way,
            part.stage,
            part.layers,
            reserved,
        )
    return kinds_among(model, part.layers, before, part.last)


def kinds_among(
    model: Model, layers: Numeric, before: Numeric, is_last: Numeric
) -> tuple[Numeric, ...]:
    """Layers of each kind on a stage with so many of the model's.

    before: how many of the leading dense layers they are; of a pattern, layers before them.
    """
    last = model.mtp_layers * is_last if model.mtp_layers else 0
    if model.layer_pattern is not None:
        return _layers_by_letter(model, model.layer_pattern, layers, before, last)
    if model.moe is None:
        return (layers + last,)
    moe = (layers - before) / model.moe.layer_period
    by_kind = {False: layers - moe, True: moe + last}
    return tuple(by_kind[kind.experts] for kind in layer_kinds(model))


def _layers_by_letter(
    model: Model, pattern: str, layers: Numeric, first: Numeric, last: Numeric
) -> tuple[Numeric, ...]:
    """Letters of a stage's part of the pattern counted, and what prediction layers add."""
    found = []
    for kind in layer_kinds(model):
        letters = [kind.blocks == (LETTERS[letter],) for letter in pattern]
        before = np.concatenate([[0], np.cumsum(letters)])
        count = before[first + layers] - before[first]
        found.append(count + last * model.prediction_blocks.get(kind.blocks, 0))
    return tuple(found)
