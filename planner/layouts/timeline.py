"""A pipeline played out: when every operation starts and ends, who idles, what is in flight.

The exact discrete counterpart of the closed forms in `planner.cost.pipeline`, which are tested
against it; a report draws it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from planner.layouts.schedules import Operation, Order, Pipeline


@dataclass(frozen=True, slots=True)
class ChunkPasses:
    """Seconds of each chunk's passes of one micro-batch, chunks in model order.

    boundary: from the end of a pass until the next chunk, on another rank, has its output.
    hidden: what a forward and a backward pass that run beside each other take less than in turn.
    """

    forward: Sequence[float]
    input_gradient: Sequence[float]
    weight_gradient: Sequence[float]
    boundary: float = 0.0
    hidden: float = 0.0

    def seconds(self, operation: Operation) -> float:
        """Seconds of an operation alone."""
        chunk = operation.chunk
        if operation.kind == "forward":
            return self.forward[chunk]
        if operation.kind == "input":
            return self.input_gradient[chunk]
        if operation.kind == "weight":
            return self.weight_gradient[chunk]
        return self.input_gradient[chunk] + self.weight_gradient[chunk]


@dataclass(frozen=True, slots=True)
class Span:
    """An operation and when it runs; two that run beside each other have the same times."""

    operation: Operation
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """What every rank runs, in order, and when."""

    pipeline: Pipeline
    ranks: tuple[tuple[Span, ...], ...]

    @property
    def seconds(self) -> float:
        """When the last operation ends."""
        return max(spans[-1].end for spans in self.ranks)

    @property
    def idle_seconds(self) -> tuple[float, ...]:
        """Seconds that each rank does nothing until the last operation of all ends."""
        whole = self.seconds
        return tuple(
            whole - sum(end - start for start, end in {(s.start, s.end) for s in spans})
            for spans in self.ranks
        )

    def in_flight(self, rank: int) -> list[tuple[float, int]]:
        """Times, and the chunks' passes whose activations the rank holds from then on.

        They are held from the start of the forward pass to the end of the weights' gradients.
        """
        starts = [(s.start, 1) for s in self.ranks[rank] if s.operation.kind == "forward"]
        ends = [(s.end, -1) for s in self.ranks[rank] if s.operation.kind in ("backward", "weight")]
        # what ends when another starts makes room for it
        changes = sorted(starts + ends)
        return list(zip((t for t, _ in changes), accumulate(n for _, n in changes), strict=True))


@dataclass(slots=True)
class _Progress:
    """How far a rank has come in its order.

    position: slots of the order that have run. free_at: when the last of them ends, in seconds.
    """

    order: Order
    position: int = 0
    free_at: float = 0.0
    spans: list[Span] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether all of the order has run."""
        return self.position == len(self.order)


def play(pipeline: Pipeline, passes: ChunkPasses) -> Timeline:
    """Run every rank's order: an operation starts when its rank is free and its input is there.

    Raises:
        AssertionError: the orders wait for each other.
    """
    ends: dict[Operation, float] = {}
    ranks = [_Progress(order) for order in pipeline.orders()]
    while not all(rank.is_complete for rank in ranks):
        before = len(ends)
        for rank in ranks:
            _advance(rank, pipeline, passes, ends)
        assert len(ends) > before, "the schedule waits for itself"
    return Timeline(pipeline, tuple(tuple(rank.spans) for rank in ranks))


def _advance(
    rank: _Progress, pipeline: Pipeline, passes: ChunkPasses, ends: dict[Operation, float]
) -> None:
    """Run a rank until an input is missing; `ends` gains when each of its operations ends."""
    while not rank.is_complete:
        slot = rank.order[rank.position]
        start = rank.free_at
        for operation in slot:
            ready = _ready(pipeline, passes, operation, ends)
            if ready is None:
                return
            start = max(start, ready)
        in_turn = sum(passes.seconds(operation) for operation in slot)
        end = start + in_turn - passes.hidden * (len(slot) > 1)
        for operation in slot:
            rank.spans.append(Span(operation, start, end))
            ends[operation] = end
        rank.free_at = end
        rank.position += 1


def _ready(
    pipeline: Pipeline, passes: ChunkPasses, operation: Operation, ends: Mapping[Operation, float]
) -> float | None:
    """When the operation's input is there; None while it is not known."""
    kind, chunk, microbatch = operation
    if kind == "weight":
        return ends.get(Operation("input", chunk, microbatch))
    if kind == "forward":
        if chunk == 0:
            return 0.0
        sources = [Operation("forward", chunk - 1, microbatch)]
    elif chunk == pipeline.num_chunks - 1:
        return ends.get(Operation("forward", chunk, microbatch))
    else:
        sources = [
            Operation("input", chunk + 1, microbatch),
            Operation("backward", chunk + 1, microbatch),
        ]
    source = next((one for one in sources if one in ends), None)
    if source is None:
        return None
    near = pipeline.rank_of(chunk, microbatch) == pipeline.rank_of(source.chunk, microbatch)
    return ends[source] + (0.0 if near else passes.boundary)
