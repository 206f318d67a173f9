"""How layers are split over the stages of a pipeline and their virtual stages.

Chunks are numbered in model order, C = pp·vp of them; stage i holds chunks i, i+pp, i+2·pp, …
The default split gives every chunk ⌊L/C⌋ layers and the remainder, one each, to the middle ones:
the first also holds the embedding, the last the head and the loss. Where what the ends hold besides
counts as layers (`reserved`: first, last), they have so many fewer, if others have more.

A split that is given (`stage_layers`) has a number of layers for each stage, or one for each chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from planner.layouts.keys import V_SHAPED
from planner.layouts.layout import Layout
from planner.layouts.numeric import Integer, Numeric


class SplitLike(Protocol):
    """What decides how layers fall into chunks: a layout, or the stages that it unfolds to
    (`planner.cost.stages.unfold`)."""

    @property
    def pp(self) -> Integer: ...
    @property
    def vp(self) -> Integer: ...
    @property
    def stage_layers(self) -> tuple[int, ...] | None: ...


Reserved = tuple[int, int]
"""What the first and the last stage hold besides the model's layers, counted as layers."""

NONE: Reserved = (0, 0)


def layers_by_stage(num_layers: int, split: SplitLike, reserved: Reserved = NONE) -> list[int]:
    """Layers of every stage of one layout, in stage order."""
    if split.stage_layers is not None:
        return given_stages(split)
    pp = int(np.max(split.pp))
    layers = default_stage_layers(num_layers, split, np.arange(pp), reserved)
    return [int(count) for count in np.broadcast_to(layers, (pp,))]


def given_stages(split: SplitLike) -> list[int]:
    """Layers of every stage of a split that is given, by stages or by chunks."""
    return [int(layers) for layers in by_stage(split.stage_layers or (), split)]


def by_stage(numbers: Sequence[int] | NDArray[Any], split: SplitLike) -> NDArray[Any]:
    """Sums of every stage, of numbers by stage or by chunk; all rows of a table have as many."""
    sums: NDArray[Any] = np.reshape(numbers, (-1, int(np.max(split.pp)))).sum(axis=0)
    return sums


def names_chunks(split: SplitLike) -> bool:
    """Whether a split is given, and by chunks."""
    layers = split.stage_layers
    return layers is not None and len(layers) == int(np.max(split.pp)) * int(np.max(split.vp))


def default_stage_layers(
    num_layers: int, split: SplitLike, stage: Integer, reserved: Reserved = NONE
) -> Integer:
    """Layers of `stage` under the default split; shapes broadcast."""
    chunks = split.pp * split.vp
    placed = placed_layers(num_layers, split, reserved)
    base = placed // chunks
    start = first_extra(placed, split)
    end = start + (placed - base * chunks)
    # chunk numbers c ≡ stage (mod pp) with start ≤ c < end
    extra = (end - 1 - stage) // split.pp - (start - 1 - stage) // split.pp
    layers = base * split.vp + extra
    if reserved == NONE:
        return layers
    first, last = reserved
    kept = placed > num_layers
    return layers - kept * (first * (stage == 0) + last * (stage == split.pp - 1))


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
    # every second chunk of a V's ranks lies on the way back
    is_back = (np.arange(layout.vp) % 2 == 1) & (layout.schedule in V_SHAPED)
    by_stages = [
        chunks[::-1] if back else chunks
        for chunks, back in zip(usual.reshape(layout.vp, -1), is_back, strict=True)
    ]
    if stage_layers is None or np.sum(by_stages, axis=0).tolist() == [*stage_layers]:
        return [int(layers) for layers in usual]
    each, rest = np.divmod(stage_layers, layout.vp)
    if np.any(rest):
        return None
    return [int(layers) for back in is_back for layers in (each[::-1] if back else each)]


@dataclass(frozen=True, slots=True)
class LastTurn:
    """The turn of the last chunk, which has the head, in a round of the interleaved schedule.

    A round passes pp micro-batches through all chunks. Beside the stage with the most layers (of
    those with as many the last) it may wait for the last chunk. In layers, per micro-batch:

    extra_layers: what the last chunk has more than that stage's chunk of the same turn; below 0
    where it has fewer, −inf where both are one's or all chunks are alike.
    sooner_layers: what is passed sooner for it: a chunk once a round for each stage that lies
    between, as every stage has its chunk's turn one slot earlier than the next.
    """

    extra_layers: Numeric
    sooner_layers: Numeric


def last_turn(num_layers: int, split: SplitLike, reserved: Reserved = NONE) -> LastTurn:
    """The last chunk's turn under a layout's stage split; shape of the layout."""
    if split.stage_layers is not None and not _is_default(num_layers, split, reserved):
        return _given_last_turn(split, split.stage_layers)
    chunks = split.pp * split.vp
    placed = placed_layers(num_layers, split, reserved)
    first, extra = first_extra(placed, split), placed % chunks
    fullest = (first + extra - 1) % split.pp
    chunk = chunks - split.pp + fullest
    has_extra = 1 * ((first <= chunk) & (chunk < first + extra))
    ahead = 1.0 * (first + extra == chunks) - has_extra - reserved[1] * (placed > num_layers)
    sooner = (split.pp - 1 - fullest) * np.maximum(placed // chunks, 1) / split.pp
    return LastTurn(np.where((extra > 0) & (fullest < split.pp - 1), ahead, -np.inf), sooner)


def _given_last_turn(split: SplitLike, stage_layers: tuple[int, ...]) -> LastTurn:
    """The same of a split that is given, by stages or by chunks."""
    pp, vp = int(np.max(split.pp)), int(np.max(split.vp))
    fullest = pp - 1 - int(np.argmax(given_stages(split)[::-1]))
    named = np.array(stage_layers)
    chunks = named if names_chunks(split) else np.tile(named / vp, vp)
    sooner = (pp - 1 - fullest) * max(chunks) / pp
    if fullest == pp - 1 or min(chunks) == max(chunks):
        return LastTurn(-np.inf, sooner)
    return LastTurn(chunks[-1] - chunks[(vp - 1) * pp + fullest], sooner)


def _is_default(num_layers: int, split: SplitLike, reserved: Reserved) -> bool:
    """Whether the stages named are those of the default split."""
    pp = int(np.max(split.pp))
    stage = np.arange(pp).reshape((-1,) + (1,) * np.ndim(split.pp))
    usual = np.asarray(default_stage_layers(num_layers, split, stage, reserved))
    return tuple(np.max(usual.reshape(pp, -1), axis=1).tolist()) == split.stage_layers


class _Chunks(NamedTuple):
    """A pipeline whose every chunk is a stage."""

    pp: Integer
    vp: Integer = 1
    stage_layers: tuple[int, ...] | None = None


def chunk_range(
    num_layers: int, split: SplitLike, reserved: Reserved = NONE
) -> tuple[Integer, Integer]:
    """Layers of the chunk with the fewest and of the one with the most; shape of the layout.

    Of a split that is given by stages, a stage's layers over its chunks, rounded down and up; 0 of
    one that is of other stages.
    """
    if split.stage_layers is not None:
        if names_chunks(split):
            return min(split.stage_layers), max(split.stage_layers)
        if len(split.stage_layers) % int(np.max(split.pp)):
            return 0, 0
        of_stages = given_stages(split)
        return min(of_stages) // split.vp, -(-max(of_stages) // split.vp)
    chunks = _Chunks(split.pp * split.vp)
    placed = placed_layers(num_layers, chunks, reserved)
    first, last, extra = (
        default_stage_layers(num_layers, chunks, chunk, reserved)
        for chunk in (0, chunks.pp - 1, first_extra(placed, chunks))
    )
    ends = np.minimum(first, last)
    fewest = np.where(chunks.pp > 2, np.minimum(ends, placed // chunks.pp), ends)
    return fewest, np.maximum(np.maximum(first, last), extra)


def placed_layers(num_layers: int, split: SplitLike, reserved: Reserved) -> Integer:
    """Layers to split evenly: with the reserved ones where chunks hold more than those."""
    if reserved == NONE:
        return num_layers
    chunks, every = split.pp * split.vp, sum(reserved)
    return num_layers + every * ((num_layers + every) // chunks > max(reserved))


def first_extra(num_layers: Integer, split: SplitLike) -> Integer:
    """The first of the middle chunks that have one layer of the remainder."""
    chunks = split.pp * split.vp
    return np.asarray((chunks - num_layers % chunks) // 2)
