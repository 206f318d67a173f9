"""Pipeline schedules: the order in which every rank runs its operations, and where chunks live.

    1f1b            warm-up, then one forward and one backward pass in turn (PipeDream-Flush;
                    Narayanan et al. 2021, §2.2); torch: 1F1B
    interleaved     1F1B with vp chunks a rank, groups of pp micro-batches passing one chunk after
                    another (same, §2.2); torch: Interleaved1F1B
    zb-h1           1F1B whose backward pass is cut in two: gradients of inputs first, those of
                    weights as many micro-batches later as the rank's number (Qi et al. 2023,
                    arXiv 2401.10241, §2.2); torch: InterleavedZeroBubble with one chunk a rank
    interleaved-zb  the same with vp chunks a rank; torch: InterleavedZeroBubble
    zb-v            two chunks a rank, the second on the way back (Qi et al. 2023, §6);
                    torch: ZBVZeroBubble
    dualpipe        micro-batches enter at both ends, every rank holds a stage of each direction,
                    forward and backward passes of two micro-batches run beside each other
                    (DeepSeek-V3, arXiv 2412.19437, §3.2.1; github.com/deepseek-ai/DualPipe)
    dualpipev       the half of it that holds every stage once: two chunks a rank as in zb-v
                    (github.com/deepseek-ai/DualPipe, dualpipev.py); torch: DualPipeV

Chunks are numbered in model order. A rank's order is a list of slots of one operation, or of a
forward and a backward pass that run beside each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["forward", "backward", "input", "weight"]
"""backward: the gradients of inputs and weights at once."""


class Operation(NamedTuple):
    """One pass of one micro-batch through one chunk."""

    kind: Kind
    chunk: int
    microbatch: int


Slot = tuple[Operation, ...]
Order = list[Slot]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A schedule of m micro-batches over pp ranks of vp chunks each (dualpipe: of two copies)."""

    schedule: str
    pp: int
    vp: int
    num_microbatches: int

    @property
    def num_chunks(self) -> int:
        """Chunks that a micro-batch passes."""
        return self.pp * self.vp

    def rank_of(self, chunk: int, microbatch: int) -> int:
        """The rank that runs a micro-batch's pass through a chunk."""
        if self.schedule == "dualpipe":
            back = microbatch >= self.num_microbatches // 2
            return self.pp - 1 - chunk if back else chunk
        if self.schedule in V_SHAPED:
            return min(chunk, self.num_chunks - 1 - chunk)
        return chunk % self.pp

    def orders(self) -> list[Order]:
        """What every rank runs, in order."""
        return [list(ORDERS[self.schedule](self, rank)) for rank in range(self.pp)]


V_SHAPED = ("zb-v", "dualpipev")
"""Schedules whose second chunk of a rank lies on the way back."""


# ---------------------------------------------------------------- one forward, one backward


def _one_forward_one_backward(pipeline: Pipeline, rank: int) -> Iterator[Slot]:
    """1F1B and interleaved; of a number of micro-batches that pp does not divide, the rounds are
    of a few more or fewer (torch)."""
    ahead = 2 * (pipeline.pp - rank - 1) if pipeline.vp > 1 else pipeline.pp - rank - 1
    for forward, backward in _alternating(pipeline, rank, ahead):
        if forward is not None:
            yield (forward,)
        if backward is not None:
            yield (backward._replace(kind="backward"),)


def _zero_bubble(pipeline: Pipeline, rank: int) -> Iterator[Slot]:
    """Gradients of weights follow those of inputs as many operations later as the rank's number."""
    waiting: list[Operation] = []
    for forward, backward in _alternating(pipeline, rank, pipeline.pp - rank - 1):
        if forward is not None:
            yield (forward,)
        if backward is not None:
            yield (backward,)
            waiting.append(backward._replace(kind="weight"))
            if len(waiting) > rank:
                yield (waiting.pop(0),)
    for operation in waiting:
        yield (operation,)


def _alternating(
    pipeline: Pipeline, rank: int, ahead: int
) -> Iterator[tuple[Operation | None, Operation | None]]:
    """Forward passes and, once `ahead` and all but one chunk's are done, a backward one each."""
    pp, vp, m = pipeline.pp, pipeline.vp, pipeline.num_microbatches
    together = m // max(1, m // pp)  # micro-batches that pass a chunk after one another
    numbered = _numbered(pipeline, rank, together)
    total = m * vp
    warm_up = min(ahead + (vp - 1) * together, total)
    for k in range(total + warm_up):
        yield (
            numbered(k, True) if k < total else None,
            numbered(k - warm_up, False) if k >= warm_up else None,
        )


def _numbered(pipeline: Pipeline, rank: int, together: int) -> Callable[[int, bool], Operation]:
    pp, vp = pipeline.pp, pipeline.vp

    def operation(k: int, forward: bool) -> Operation:
        round_, inside = divmod(k, together * vp)
        turn, place = divmod(inside, together)
        turn = turn if forward else vp - 1 - turn
        kind: Kind = "forward" if forward else "input"
        return Operation(kind, turn * pp + rank, round_ * together + place)

    return operation


# ---------------------------------------------------------------- V


class _Counted:
    """The next operation of each kind on each of two chunks; weights in the order of inputs."""

    def __init__(self, chunks: tuple[int, int], starts: tuple[int, int] = (0, 0)) -> None:
        self.chunks = chunks
        self.next = {kind: list(starts) for kind in ("forward", "input")}
        self.waiting: list[Operation] = []

    def forward(self, which: int) -> Operation:
        return self._take("forward", which)

    def input(self, which: int) -> Operation:
        operation = self._take("input", which)
        self.waiting.append(operation._replace(kind="weight"))
        return operation

    def backward(self, which: int) -> Operation:
        return self._take("input", which)._replace(kind="backward")

    def weight(self, chunk: int | None = None) -> Operation:
        """The oldest weight gradient that waits (of a chunk)."""
        at = 0
        if chunk is not None:
            at = next(i for i, found in enumerate(self.waiting) if found.chunk == chunk)
        return self.waiting.pop(at)

    def _take(self, kind: Kind, which: int) -> Operation:
        number = self.next[kind][which]
        self.next[kind][which] += 1
        return Operation(kind, self.chunks[which], number)


def _zero_bubble_v(pipeline: Pipeline, rank: int) -> Iterator[Slot]:
    """torch.distributed.pipelining 2.11, ScheduleZBVZeroBubble: of at least 2·pp − 1 micro-batches,
    those there are."""
    pp, m = pipeline.pp, pipeline.num_microbatches
    for operation in _whole_zero_bubble_v(pp, rank, max(2 * pp - 1, m)):
        if operation.microbatch < m:
            yield (operation,)


def _whole_zero_bubble_v(pp: int, rank: int, m: int) -> Iterator[Operation]:
    counted = _Counted((rank, 2 * pp - 1 - rank))
    forward, inputs = counted.next["forward"], counted.next["input"]
    for _ in range(2 * (pp - rank) - 1):
        yield counted.forward(0)
    for _ in range(rank):
        yield counted.forward(1)
        yield counted.forward(0)
    for _ in range(pp - rank):
        yield from (counted.forward(1), counted.input(1), counted.weight())
    while forward[1] < forward[0] or forward[0] < m:
        if forward[0] < m:
            yield counted.forward(0)
        yield from (counted.input(0), counted.weight())
        yield from (counted.forward(1), counted.input(1), counted.weight())
    for _ in range(rank):
        yield from (counted.input(0), counted.input(1))
    for _ in range(pp - rank):
        yield from (counted.input(0), counted.weight(rank))
    assert inputs == forward
    for chunk in (2 * pp - 1 - rank, rank):
        while any(operation.chunk == chunk for operation in counted.waiting):
            yield counted.weight(chunk)


# ---------------------------------------------------------------- both directions


def _dualpipe(pipeline: Pipeline, rank: int) -> Iterator[Slot]:
    """dualpipe.py: both halves of the ranks do the same, with the directions exchanged."""
    pp, half = pipeline.pp, pipeline.num_microbatches // 2
    near = min(rank, pp - 1 - rank)
    own, other = (rank, 0), (pp - 1 - rank, half)
    if rank >= pp // 2:
        # near its end the second direction is the first: stage pp − 1 − rank of it
        own, other = (pp - 1 - rank, half), (rank, 0)
    counted = _Counted((own[0], other[0]), (own[1], other[1]))
    return _both_ways(counted, pp // 2, near, half)


def _dualpipe_v(pipeline: Pipeline, rank: int) -> Iterator[Slot]:
    """dualpipev.py: the first half of twice as many ranks, where directions turn at the last."""
    counted = _Counted((rank, 2 * pipeline.pp - 1 - rank))
    return _both_ways(counted, pipeline.pp, rank, pipeline.num_microbatches)


def _both_ways(counted: _Counted, ranks: int, rank: int, m: int) -> Iterator[Slot]:
    """The eight steps of dualpipe.py and dualpipev.py for `rank` of `ranks` up to the middle."""
    rest = ranks - rank - 1
    for _ in range(2 * rest):
        yield (counted.forward(0),)
    for _ in range(rank + 1):
        yield (counted.forward(0),)
        yield (counted.forward(1),)
    for _ in range(rest):
        yield (counted.input(1),)
        yield (counted.weight(),)
        yield (counted.forward(1),)
    for i in range(m - 2 * ranks + rank + 1):
        if i == 0 and rest == 0:
            yield (counted.forward(0),)
            yield (counted.backward(1),)
        else:
            yield (counted.forward(0), counted.backward(1))
        yield (counted.forward(1), counted.backward(0))
    for _ in range(rest):
        yield (counted.backward(1),)
        yield (counted.forward(1), counted.backward(0))
    # of the last backward passes, the second half leaves the gradients of weights for the end
    for k in range(2 * (rank + 1)):
        yield (counted.input(1 - k % 2) if k > rank else counted.backward(1 - k % 2),)
    for _ in range(rest):
        yield (counted.weight(),)
        yield (counted.input(0),)
    while counted.waiting:
        yield (counted.weight(),)


ORDERS: dict[str, Callable[[Pipeline, int], Iterator[Slot]]] = {
    "1f1b": _one_forward_one_backward,
    "interleaved": _one_forward_one_backward,
    "zb-h1": _zero_bubble,
    "interleaved-zb": _zero_bubble,
    "zb-v": _zero_bubble_v,
    "dualpipe": _dualpipe,
    "dualpipev": _dualpipe_v,
}
