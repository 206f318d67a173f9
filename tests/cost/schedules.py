"""Pipeline schedules played out one operation after another, for tests to count in."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Operation:
    """Forward or backward pass of one micro-batch through one chunk of a stage."""

    forward: bool
    chunk: int
    microbatch: int


def operations(pp: int, vp: int, m: int, stage: int) -> list[Operation]:
    """What a stage runs, in order: 1F1B, or Megatron's interleaving of vp chunks (m % pp == 0)."""

    def numbered(k: int, forward: bool) -> Operation:
        # groups of pp micro-batches pass one chunk after another, backwards in reverse
        round_, inside = divmod(k, pp * vp)
        chunk, place = divmod(inside, pp)
        return Operation(forward, chunk if forward else vp - 1 - chunk, round_ * pp + place)

    total = m * vp
    ahead = pp - stage - 1 if vp == 1 else 2 * (pp - stage - 1) + (vp - 1) * pp
    warm_up = min(ahead, total)
    order = [numbered(k, True) for k in range(warm_up)]
    for k in range(total - warm_up):
        order += [numbered(warm_up + k, True), numbered(k, False)]
    return order + [numbered(k, False) for k in range(total - warm_up, total)]


def peak_in_flight(order: list[Operation]) -> int:
    """Forward passes of a chunk not yet undone, at their most."""
    return max(accumulate(1 if operation.forward else -1 for operation in order))


def seconds(pp: int, vp: int, m: int, forward: list[float], backward: list[float]) -> float:
    """When the last operation ends; forward and backward seconds of each of the pp·vp chunks."""
    orders = [operations(pp, vp, m, stage) for stage in range(pp)]
    done: dict[tuple[bool, int, int], float] = {}
    clock, position = [0.0] * pp, [0] * pp
    while any(position[stage] < len(orders[stage]) for stage in range(pp)):
        moved = False
        for stage in range(pp):
            while position[stage] < len(orders[stage]):
                operation = orders[stage][position[stage]]
                chunk = operation.chunk * pp + stage  # in model order
                ready = _ready(done, operation, chunk, pp * vp)
                if ready is None:
                    break
                length = forward[chunk] if operation.forward else backward[chunk]
                clock[stage] = max(clock[stage], ready) + length
                done[operation.forward, chunk, operation.microbatch] = clock[stage]
                position[stage] += 1
                moved = True
        if not moved:
            raise AssertionError("the schedule waits for itself")
    return max(clock)


def _ready(
    done: dict[tuple[bool, int, int], float], operation: Operation, chunk: int, chunks: int
) -> float | None:
    """When the operation's input is there; None while it is not known."""
    if operation.forward:
        needs = [(True, chunk - 1)] if chunk > 0 else []
    else:
        needs = [(False, chunk + 1)] if chunk < chunks - 1 else [(True, chunk)]
    keys = [(forward, c, operation.microbatch) for forward, c in needs]
    if any(key not in done for key in keys):
        return None
    return max((done[key] for key in keys), default=0.0)
