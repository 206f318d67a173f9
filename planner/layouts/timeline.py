"""A pipeline played out: when every operation starts and ends, who idles, what is in flight.

The exact discrete counterpart of the closed forms in `planner.cost.pipeline`, which are tested
against it; a report draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


def play(pipeline: Pipeline, passes: ChunkPasses) -> Timeline:
    """Run every rank's order: an operation starts when its rank is free and its input is there.

    Raises:
        AssertionError: the orders wait for each other.
    """
    orders = pipeline.orders()
    done: dict[Operation, float] = {}
    spans: list[list[Span]] = [[] for _ in orders]
    clock, position = [0.0] * len(orders), [0] * len(orders)
    while any(position[rank] < len(order) for rank, order in enumerate(orders)):
        before = sum(position)
        for rank, order in enumerate(orders):
            _run(pipeline, passes, rank, order, done, spans, clock, position)
        assert sum(position) > before, "the schedule waits for itself"
    return Timeline(pipeline, tuple(tuple(found) for found in spans))


def _run(
    pipeline: Pipeline,
    passes: ChunkPasses,
    rank: int,
    order: Order,
    done: dict[Operation, float],
    spans: list[list[Span]],
    clock: list[float],
    position: list[int],
) -> None:
    """Run a rank until an input is missing."""
    while position[rank] < len(order):
        slot = order[position[rank]]
        start = clock[rank]
        for operation in slot:
            ready = _ready(pipeline, passes, operation, done)
            if ready is None:
                return
            start = max(start, ready)
        alone = [passes.seconds(operation) for operation in slot]
        end = start + sum(alone) - passes.hidden * (len(slot) > 1)
        for operation in slot:
            spans[rank].append(Span(operation, start, end))
            done[operation] = end
        clock[rank] = end
        position[rank] += 1


def _ready(
    pipeline: Pipeline, passes: ChunkPasses, operation: Operation, done: dict[Operation, float]
) -> float | None:
    """When the operation's input is there; None while it is not known."""
    kind, chunk, microbatch = operation
    if kind == "weight":
        return done.get(Operation("input", chunk, microbatch))
    if kind == "forward":
        if chunk == 0:
            return 0.0
        sources = [Operation("forward", chunk - 1, microbatch)]
    elif chunk == pipeline.num_chunks - 1:
        return done.get(Operation("forward", chunk, microbatch))
    else:
        sources = [
            Operation("input", chunk + 1, microbatch),
            Operation("backward", chunk + 1, microbatch),
        ]
    found = next((source for source in sources if source in done), None)
    if found is None:
        return None
    near = pipeline.rank_of(chunk, microbatch) == pipeline.rank_of(found.chunk, microbatch)
    return done[found] + (0.0 if near else passes.boundary)
