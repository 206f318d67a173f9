"""What a micro-batch's passes take on a rank: forward, gradients of inputs, gradients of weights.

A stage's slot is their sum. What runs again and all but the forward pass's share of communication
belongs to the gradients of inputs; those of weights are matmuls alone, so nothing waits for them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from planner.cost.compute import EndTimes
from planner.cost.pipeline import Passes
from planner.cost.work import Work
from planner.layouts.layout import Numeric


def layer_passes(
    work: Work, exposed: Mapping[str, Numeric], exchange: Numeric, again: Numeric
) -> Passes:
    """A layer's, with its exposed collectives; those of the forward pass that run again are its
    share of the inputs' gradients. `exchange`: exposed seconds of its exchanges with experts."""
    communicated = _forward_exposed(exposed, again)
    return Passes(
        forward=work.forward + communicated + exchange / 2,
        inputs=work.backward
        - work.gemm_weights
        + work.recompute
        + (sum(exposed.values()) - communicated)
        + exchange / 2,
        weights=work.gemm_weights,
    )


def shorter_pass(
    work: Work,
    exposed: Mapping[str, Numeric],
    exchange: Numeric,
    again: Numeric,
    both: Numeric,
) -> Numeric:
    """Seconds of the shorter of a layer's forward and backward pass, which take `both`."""
    forward = work.forward + _forward_exposed(exposed, again) + exchange / 2
    return np.minimum(forward, both - forward)


def rerun_seconds(
    work: Work, exposed: Mapping[str, Numeric], seconds: Mapping[str, Numeric], again: Numeric
) -> Numeric:
    """Seconds that a layer takes for what it runs again: kernels and collectives of the share
    `again` of its forward pass, where exchanges with experts (of `seconds`) do not overlap."""
    cores, blocks, experts = again[1], again[3], again[4]
    exchanged = seconds.get("ep_forward", 0.0) + seconds.get("etp_forward", 0.0)
    return (
        work.recompute
        + exposed["tp_forward"] * (blocks / (1 + blocks))
        + exposed["cp_forward"] * (cores / (1 + cores))
        + exposed.get("cp_inner", 0.0) * (cores / (2 + cores))
        + exchanged * (experts / (1 + experts))
    )


def _forward_exposed(exposed: Mapping[str, Numeric], again: Numeric) -> Numeric:
    """The forward pass's share of collectives that recomputation runs again."""
    ring = exposed["tp_forward"] / (1 + again[3]) + exposed["cp_forward"] / (1 + again[1])
    return ring + exposed.get("cp_scan_forward", 0.0) / (1 + again[6])


def end_passes(ends: EndTimes, logits: Numeric) -> tuple[Passes, Passes]:
    """What the first and the last stage do besides; the embedding and the loss half either way."""
    first = Passes(ends.embedding / 2, ends.embedding / 2, 0.0)
    last = Passes(
        ends.head_forward + ends.loss / 2 + logits,
        ends.head_backward - ends.head_weights + ends.loss / 2,
        ends.head_weights,
    )
    return first, last
