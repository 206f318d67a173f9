"""Channels: the traffic of one group that can hide behind one kind of work.

Everything there is to know of a channel but its bytes stands in one row of `SPECS`: the group that
communicates, the term of the step that its exposed seconds belong to, how often a step runs it, and
what hides it. A new channel is a row, its bytes in `planner.cost.traffic`, and what hides it in
`planner.cost.overlap`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from planner.cost.context import CostContext
from planner.cost.layers import num_layers, share_of
from planner.layouts.layout import LayoutLike
from planner.layouts.numeric import Numeric


class Channel(Enum):
    """The channels of all models and software; a job has those of its model and software."""

    TP_FORWARD = auto()  # for which the layer waits
    TP_BACKWARD = auto()  # for which the layer waits
    TP_GRADIENTS = auto()  # while the gradients of inputs and weights are computed
    TP_LOGITS = auto()  # gathered for the loss, where software gathers them
    CP_FORWARD = auto()  # keys and values of all ranks, or heads for tokens and back
    CP_BACKWARD = auto()
    CP_SCAN_FORWARD = auto()  # heads for tokens and back, of state-space layers
    CP_SCAN_BACKWARD = auto()
    CP_HEADS = auto()  # all-to-alls of hierarchical context parallelism, in both passes
    PP = auto()  # sends between stages
    PARAMETERS_FORWARD = auto()  # gathered for the forward pass, or after the optimizer's step
    PARAMETERS_BACKWARD = auto()  # gathered a second time, for the backward pass (ZeRO-3)
    GRADIENTS = auto()  # reduced over the ranks that shard the states
    GRADIENTS_REPLICATE = auto()  # then over the copies of those ranks
    GRADIENTS_MIRROR = auto()  # between the two ranks that hold the same stages under dualpipe
    EP_FORWARD = auto()  # dispatch and combine
    EP_BACKWARD = auto()
    ETP_FORWARD = auto()  # tokens gathered, and sums scattered, over an expert's etp ranks
    ETP_BACKWARD = auto()
    # the same of routed experts' parameters
    EXPERT_PARAMETERS_FORWARD = auto()
    EXPERT_PARAMETERS_BACKWARD = auto()
    EXPERT_GRADIENTS = auto()
    EXPERT_GRADIENTS_REPLICATE = auto()
    EXPERT_GRADIENTS_MIRROR = auto()


class Occurs(Enum):
    """How often a step runs a channel on one rank."""

    PER_LAYER = auto()  # of every layer and micro-batch; bytes are the mean layer's
    PER_EXPERT_LAYER = auto()  # of every layer with experts, and micro-batch
    PER_MICROBATCH = auto()
    PER_GATHERING = auto()  # of parameters: every micro-batch with ZeRO-3, else every step
    PER_REDUCTION = auto()  # of gradients: every micro-batch with ZeRO-2 and 3, else every step
    PER_STEP = auto()


class HiddenBy(Enum):
    """The work behind which a channel can hide."""

    NOTHING = auto()
    FORWARD_MATMULS = auto()  # those that it feeds, chunk by chunk
    BACKWARD_MATMULS = auto()  # those that it feeds, chunk by chunk
    GRADIENT_MATMULS = auto()  # which do not wait for it
    FORWARD_ATTENTION = auto()  # all blocks of keys but the first
    BACKWARD_ATTENTION = auto()
    ANY_COMPUTATION = auto()  # a share of it that the software's coefficients give
    OTHER_MICROBATCH = auto()  # passes of another micro-batch at the same time
    FORWARD_PASSES = auto()  # of the stage's layers, what hides nothing else
    BACKWARD_PASSES = auto()


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """What there is to know of a channel besides its bytes.

    group: the ranks that communicate; time_term: the field of `StepTime` that holds its exposed
    seconds.
    """

    group: str
    time_term: str
    occurs: Occurs
    hidden_by: HiddenBy


SPECS: Mapping[Channel, ChannelSpec] = {
    Channel.TP_FORWARD: ChannelSpec("tp", "tp", Occurs.PER_LAYER, HiddenBy.FORWARD_MATMULS),
    Channel.TP_BACKWARD: ChannelSpec("tp", "tp", Occurs.PER_LAYER, HiddenBy.BACKWARD_MATMULS),
    Channel.TP_GRADIENTS: ChannelSpec("tp", "tp", Occurs.PER_LAYER, HiddenBy.GRADIENT_MATMULS),
    Channel.TP_LOGITS: ChannelSpec("tp", "tp", Occurs.PER_MICROBATCH, HiddenBy.NOTHING),
    Channel.CP_FORWARD: ChannelSpec("cp", "cp", Occurs.PER_LAYER, HiddenBy.FORWARD_ATTENTION),
    Channel.CP_BACKWARD: ChannelSpec("cp", "cp", Occurs.PER_LAYER, HiddenBy.BACKWARD_ATTENTION),
    Channel.CP_SCAN_FORWARD: ChannelSpec("cp", "cp", Occurs.PER_LAYER, HiddenBy.NOTHING),
    Channel.CP_SCAN_BACKWARD: ChannelSpec("cp", "cp", Occurs.PER_LAYER, HiddenBy.NOTHING),
    Channel.CP_HEADS: ChannelSpec("cp", "cp", Occurs.PER_LAYER, HiddenBy.NOTHING),
    Channel.PP: ChannelSpec("pp", "pp", Occurs.PER_MICROBATCH, HiddenBy.ANY_COMPUTATION),
    Channel.PARAMETERS_FORWARD: ChannelSpec(
        "shard", "dp", Occurs.PER_GATHERING, HiddenBy.FORWARD_PASSES
    ),
    Channel.PARAMETERS_BACKWARD: ChannelSpec(
        "shard", "dp", Occurs.PER_GATHERING, HiddenBy.BACKWARD_PASSES
    ),
    Channel.GRADIENTS: ChannelSpec("shard", "dp", Occurs.PER_REDUCTION, HiddenBy.BACKWARD_PASSES),
    Channel.GRADIENTS_REPLICATE: ChannelSpec(
        "replicate", "dp", Occurs.PER_STEP, HiddenBy.BACKWARD_PASSES
    ),
    # between ranks of one pipeline, but it is gradients' traffic
    Channel.GRADIENTS_MIRROR: ChannelSpec("pp", "dp", Occurs.PER_STEP, HiddenBy.BACKWARD_PASSES),
    Channel.EP_FORWARD: ChannelSpec("ep", "ep", Occurs.PER_EXPERT_LAYER, HiddenBy.OTHER_MICROBATCH),
    Channel.EP_BACKWARD: ChannelSpec(
        "ep", "ep", Occurs.PER_EXPERT_LAYER, HiddenBy.OTHER_MICROBATCH
    ),
    Channel.ETP_FORWARD: ChannelSpec("etp", "ep", Occurs.PER_EXPERT_LAYER, HiddenBy.NOTHING),
    Channel.ETP_BACKWARD: ChannelSpec("etp", "ep", Occurs.PER_EXPERT_LAYER, HiddenBy.NOTHING),
    Channel.EXPERT_PARAMETERS_FORWARD: ChannelSpec(
        "edp", "dp", Occurs.PER_GATHERING, HiddenBy.FORWARD_PASSES
    ),
    Channel.EXPERT_PARAMETERS_BACKWARD: ChannelSpec(
        "edp", "dp", Occurs.PER_GATHERING, HiddenBy.BACKWARD_PASSES
    ),
    Channel.EXPERT_GRADIENTS: ChannelSpec(
        "edp", "dp", Occurs.PER_REDUCTION, HiddenBy.BACKWARD_PASSES
    ),
    Channel.EXPERT_GRADIENTS_REPLICATE: ChannelSpec(
        "replicate", "dp", Occurs.PER_STEP, HiddenBy.BACKWARD_PASSES
    ),
    Channel.EXPERT_GRADIENTS_MIRROR: ChannelSpec(
        "pp", "dp", Occurs.PER_STEP, HiddenBy.BACKWARD_PASSES
    ),
}


@dataclass(frozen=True, slots=True)
class StateChannels:
    """The channels of parameters and gradients, of dense ones or of routed experts'."""

    parameters_forward: Channel
    parameters_backward: Channel
    gradients: Channel
    gradients_replicate: Channel
    gradients_mirror: Channel


DENSE_STATES = StateChannels(
    Channel.PARAMETERS_FORWARD, Channel.PARAMETERS_BACKWARD, Channel.GRADIENTS,
    Channel.GRADIENTS_REPLICATE, Channel.GRADIENTS_MIRROR,
)  # fmt: skip
EXPERT_STATES = StateChannels(
    Channel.EXPERT_PARAMETERS_FORWARD, Channel.EXPERT_PARAMETERS_BACKWARD,
    Channel.EXPERT_GRADIENTS, Channel.EXPERT_GRADIENTS_REPLICATE, Channel.EXPERT_GRADIENTS_MIRROR,
)  # fmt: skip


def occurrences(ctx: CostContext, layout: LayoutLike) -> dict[Channel, Numeric]:
    """How many times a step runs each channel on one rank."""
    m = layout.num_microbatches
    zero = np.asarray(layout.zero_stage)
    layer_passes = m * (num_layers(ctx.model) / layout.pp)
    counts = {
        Occurs.PER_LAYER: layer_passes,
        Occurs.PER_MICROBATCH: m,
        Occurs.PER_GATHERING: np.where(zero == 3, m, 1),
        Occurs.PER_REDUCTION: np.where(zero >= 2, m, 1),
        Occurs.PER_STEP: 1,
    }
    if ctx.model.moe is not None:
        counts[Occurs.PER_EXPERT_LAYER] = layer_passes * share_of(ctx.layer_kinds, "experts")
    return {
        channel: counts[spec.occurs] for channel, spec in SPECS.items() if spec.occurs in counts
    }
