"""What a micro-batch's passes take on a rank: forward, gradients of inputs, gradients of weights.

A stage's slot is their sum. What runs again and all but the forward pass's share of communication
belongs to the gradients of inputs; those of weights are matmuls alone, so nothing waits for them.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.cost.compute import EndTimes
from planner.cost.pipeline import Passes
from planner.cost.work import Work
from planner.layout import Numeric


def layer_passes(
    work: Work, exposed: Mapping[str, Numeric], exchange: Numeric, again: Numeric
) -> Passes:
    """A layer's, with its exposed collectives; those of the forward pass that run again are its
    share of the inputs' gradients. `exchange`: exposed seconds of its exchanges with experts."""
    tp_forward = exposed["tp_forward"] / (1 + again[3])
    cp_forward = exposed["cp_forward"] / (1 + again[1])
    return Passes(
        forward=work.forward + tp_forward + cp_forward + exchange / 2,
        inputs=work.backward
        - work.gemm_weights
        + work.recompute
        + (sum(exposed.values()) - tp_forward - cp_forward)
        + exchange / 2,
        weights=work.gemm_weights,
    )


def end_passes(ends: EndTimes, logits: Numeric) -> tuple[Passes, Passes]:
    """What the first and the last stage do besides; the embedding and the loss half either way."""
    first = Passes(ends.embedding / 2, ends.embedding / 2, 0.0)
    last = Passes(
        ends.head_forward + ends.loss / 2 + logits,
        ends.head_backward - ends.head_weights + ends.loss / 2,
        ends.head_weights,
    )
    return first, last
