"""How layers are split over the stages of a pipeline and their virtual stages.

Chunks are numbered in model order, C = pp·vp of them; stage i holds chunks i, i+pp, i+2·pp, …
The default split gives every chunk ⌊L/C⌋ layers and the remainder, one each, to the middle ones:
the first also holds the embedding, the last the head and the loss. Where what the ends hold besides
counts as layers (`reserved`: first, last), they have so many fewer, if others have more.

A split that is given (`stage_layers`) has a number of layers for each stage, or one for each chunk.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from planner.layouts.layout import V_SHAPED, Layout, Numeric


class Cut(Protocol):
    """What says how layers are cut into chunks: a layout, or its way unfolded."""

    @property
    def pp(self) -> Numeric: ...
    @property
    def vp(self) -> Numeric: ...
    @property
    def stage_layers(self) -> tuple[int, ...] | None: ...


Reserved = tuple[int, int]
"""What the first and the last stage hold besides the model's layers, counted as layers."""

NONE: Reserved = (0, 0)


def layers_by_stage(num_layers: int, cut: Cut, reserved: Reserved = NONE) -> list[int]:
    """Layers of every stage of one layout, or of one way of it."""
    if cut.stage_layers is not None:
        return given_stages(cut)
    layers = default_stage_layers(num_layers, cut, np.arange(cut.pp), reserved)
    return [int(count) for count in np.broadcast_to(layers, (cut.pp,))]


def given_stages(cut: Cut) -> list[int]:
    """Layers of every stage of a split that is given, by stages or by chunks."""
    return [int(layers) for layers in by_stage(cut.stage_layers, cut)]


def by_stage(numbers: Numeric, cut: Cut) -> Numeric:
    """Sums of every stage, of numbers by stages or by chunks; all rows of a cut have as many."""
    return np.reshape(numbers, (-1, int(np.max(cut.pp)))).sum(axis=0)


def names_chunks(cut: Cut) -> bool:
    """Whether a split is given, and by chunks."""
    split = cut.stage_layers
    return split is not None and len(split) == int(np.max(cut.pp)) * int(np.max(cut.vp))


def default_stage_layers(
    num_layers: int, layout: Cut, stage: Numeric, reserved: Reserved = NONE
) -> Numeric:
    """Layers of `stage` under the default split; shapes broadcast."""
    chunks = layout.pp * layout.vp
    placed = placed_layers(num_layers, layout, reserved)
    base = placed // chunks
    start = first_extra(placed, layout)
    end = start + (placed - base * chunks)
    # chunk numbers c ≡ stage (mod pp) with start ≤ c < end
    extra = (end - 1 - stage) // layout.pp - (start - 1 - stage) // layout.pp
    layers = base * layout.vp + extra
    if reserved == NONE:
        return layers
    first, last = reserved
    kept = placed > num_layers
    return layers - kept * (first * (stage == 0) + last * (stage == layout.pp - 1))


def chunk_layers(num_layers: int, layout: Layout, reserved: Reserved = NONE) -> list[int] | None:
    """Layers of each of the pp·vp chunks of one layout, in model order.

    None where the layout names stages that do not fall into equal chunks: then only its author
    knows how.
    """
    if layout.stage_layers is not None and names_chunks(layout):
        return list(layout.stage_layers)
    chunk = np.arange(layout.pp * layout.vp)
    placed = placed_layers(num_layers, layout, reserved)
    base, extra = divmod(int(placed), len(chunk))
    start = int(first_extra(placed, layout))
    usual = base + ((start <= chunk) & (chunk < start + extra))
    np.subtract.at(usual, [0, -1], np.array(reserved) * (placed > num_layers))
    stage_layers = layout.stage_layers
    turns = [layout.schedule in V_SHAPED and turn % 2 == 1 for turn in range(layout.vp)]
    held = [
        chunks[::-1] if back else chunks
        for chunks, back in zip(usual.reshape(layout.vp, -1), turns, strict=True)
    ]
    if stage_layers is None or np.sum(held, axis=0).tolist() == [*stage_layers]:
        return [int(layers) for layers in usual]
    if any(layers % layout.vp for layers in stage_layers):
        return None
    each = [layers // layout.vp for layers in stage_layers]
    return [layers for back in turns for layers in (each[::-1] if back else each)]


def last_turn(num_layers: int, layout: Cut, reserved: Reserved = NONE) -> tuple[Numeric, Numeric]:
    """What a round of the interleaved schedule may wait for beside the stage with the most layers
    (of those with as many the last), pp micro-batches through all chunks: the turn of the last
    chunk, which has the head. Two numbers of layers, a micro-batch:

    - those that the last chunk has more than that stage's chunk of the same turn; below 0 where it
      has fewer, −inf where both are one's or all chunks are alike;
    - those that are passed sooner for it: a chunk once a round for each stage that lies between, as
      every stage has its chunk's turn one slot earlier than the next.
    """
    if layout.stage_layers is not None and not _is_default(num_layers, layout, reserved):
        pp, vp = int(np.max(layout.pp)), int(np.max(layout.vp))
        most = pp - 1 - int(np.argmax(given_stages(layout)[::-1]))
        named = np.array(layout.stage_layers)
        chunks = named if names_chunks(layout) else np.tile(named / vp, vp)
        sooner = (pp - 1 - most) * max(chunks) / pp
        alike = most == pp - 1 or min(chunks) == max(chunks)
        return -np.inf if alike else chunks[-1] - chunks[(vp - 1) * pp + most], sooner
    chunks = layout.pp * layout.vp
    placed = placed_layers(num_layers, layout, reserved)
    first, extra = first_extra(placed, layout), placed % chunks
    most = (first + extra - 1) % layout.pp
    chunk = chunks - layout.pp + most
    held = (first <= chunk) & (chunk < first + extra)
    ahead = 1.0 * (first + extra == chunks) - held - reserved[1] * (placed > num_layers)
    sooner = (layout.pp - 1 - most) * np.maximum(placed // chunks, 1) / layout.pp
    return np.where((extra > 0) & (most < layout.pp - 1), ahead, -np.inf), sooner


def _is_default(num_layers: int, layout: Cut, reserved: Reserved) -> bool:
    """Whether the stages named are those of the default split."""
    pp = int(np.max(layout.pp))
    stage = np.arange(pp).reshape((-1,) + (1,) * np.ndim(layout.pp))
    usual = default_stage_layers(num_layers, layout, stage, reserved)
    return tuple(np.max(usual.reshape(pp, -1), axis=1).tolist()) == layout.stage_layers


class _Chunks(NamedTuple):
    """A cut whose every chunk is a stage."""

    pp: Numeric
    vp: Numeric = 1
    stage_layers: tuple[int, ...] | None = None


def chunk_range(num_layers: int, cut: Cut, reserved: Reserved = NONE) -> tuple[Numeric, Numeric]:
    """Layers of the chunk with the fewest and of the one with the most; shape of the cut.

    Of a split that is given by stages, a stage's layers over its chunks, rounded down and up; 0 of
    one that is of other stages.
    """
    if cut.stage_layers is not None:
        if names_chunks(cut):
            return min(cut.stage_layers), max(cut.stage_layers)
        if len(cut.stage_layers) % int(np.max(cut.pp)):
            return 0, 0
        of_stages = given_stages(cut)
        return min(of_stages) // cut.vp, -(-max(of_stages) // cut.vp)
    chunks = _Chunks(cut.pp * cut.vp)
    placed = placed_layers(num_layers, chunks, reserved)
    first, last, extra = (
        default_stage_layers(num_layers, chunks, chunk, reserved)
        for chunk in (0, chunks.pp - 1, first_extra(placed, chunks))
    )
    ends = np.minimum(first, last)
    fewest = np.where(chunks.pp > 2, np.minimum(ends, placed // chunks.pp), ends)
    return fewest, np.maximum(np.maximum(first, last), extra)


def placed_layers(num_layers: int, layout: Cut, reserved: Reserved) -> Numeric:
    """Layers to split evenly: with the reserved ones where chunks hold more than those."""
    if reserved == NONE:
        return num_layers
    chunks, every = layout.pp * layout.vp, sum(reserved)
    return num_layers + every * ((num_layers + every) // chunks > max(reserved))


def first_extra(num_layers: Numeric, layout: Cut) -> Numeric:
    """The first of the middle chunks that have one layer of the remainder."""
    chunks = layout.pp * layout.vp
    return np.asarray((chunks - num_layers % chunks) // 2)
