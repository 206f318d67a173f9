"""Software profiles: what a training framework allows, and the few numbers it costs."""

from typing import Annotated, Literal

from annotated_types import Le
from pydantic import Field, field_validator

from planner.errors import InputError
from planner.inputs.quantities import (
    Bytes,
    CountOrZero,
    Fraction,
    NotNegative,
    Positive,
    Seconds,
    Status,
)
from planner.inputs.values import Strict
from planner.layouts.keys import (
    ContextParallelKind,
    Dispatcher,
    Offload,
    Overlap,
    Recompute,
    Schedule,
)
from planner.problem.hardware import AttentionBackend
from planner.problem.model import Model
from planner.problem.precision import TrainingPrecision
from planner.problem.training import CudaGraphs

OrderAxis = Literal["tp", "cp", "ep", "etp", "edp", "dp", "dp_shard", "dp_replicate", "pp"]
"""Axes that a framework's rank order names; its own dp is dp_shard times dp_replicate."""

ZeroStage = Annotated[CountOrZero, Le(3)]

FALLBACK = "fallback"
"""The shipped profile for frameworks that have none: medians of the others, in no fit."""


class SoftwareCoefficients(Strict):
    """The fitted numbers of a framework.

    Overlaps are the shares of a group's busy time that computation can hide. The multiplier is on
    the time of memory-bound kernels; `allocator_fraction` is what the caching allocator loses, as
    a share of the memory in use. `contention_fraction` is what a second of parameter and gradient
    traffic that hides takes from the work that hides it. What nothing modelled explains is
    `unexplained_fraction` of a step, and `unexplained_seconds` in every step.
    """

    tp_overlap_fraction: Fraction
    dp_overlap_fraction: Fraction
    pp_overlap_fraction: Fraction
    memory_bound_multiplier: Positive
    contention_fraction: Fraction
    host_seconds_per_kernel: Seconds
    unexplained_fraction: NotNegative
    unexplained_seconds: Seconds
    allocator_fraction: Fraction


class AttentionKernels(Strict):
    """The kernels by which a framework computes attention unless told otherwise.

    Of `kernels` that the accelerator type has figures for, the fastest runs; where it has figures
    for none of them, the fastest that it has.
    """

    kernels: tuple[AttentionBackend, ...] = Field(alias="value", min_length=1)
    source: str
    status: Status

    @field_validator("kernels")
    @classmethod
    def _kernels_once(cls, kernels: tuple[AttentionBackend, ...]) -> tuple[AttentionBackend, ...]:
        if len(set(kernels)) < len(kernels):
            raise InputError("a kernel is given twice", value=kernels, allowed="each once")
        return kernels


class GraphPools(Strict):
    """The share of a rank's activations that the memory pools of CUDA graphs hold besides.

    What is captured has pools of its own, which neither other graphs nor what runs uncaptured can
    use. By what is captured: parts of a step, or all of it.
    """

    partial: Fraction
    full: Fraction

    def share_of(self, cuda_graphs: CudaGraphs) -> float:
        """The share where this much of a step is captured; 0 where nothing is."""
        return {"none": 0.0, "partial": float(self.partial), "full": float(self.full)}[cuda_graphs]


class Software(Strict):
    """A software profile: what a framework allows, how it works, and the few numbers it costs.

    `rules` are ids of rules that hold in addition to those of every framework; rank orders in
    `orders` have the innermost axis first; `frameworks` are names by which runs and users mean
    this profile.
    """

    name: str
    description: str
    frameworks: tuple[str, ...] = ()
    # Another profile of the same framework, which uses the same coefficients.
    kin: str | None = None
    rules: tuple[str, ...]
    orders: dict[str, tuple[OrderAxis, ...]] = Field(min_length=1)
    schedules: tuple[Schedule, ...] = Field(min_length=1)
    zero_stages: tuple[ZeroStage, ...] = Field(min_length=1)
    # Whether states are sharded over all data-parallel ranks, or over groups of any size.
    shard_groups: Literal["full", "any"]
    recompute: tuple[Recompute, ...] = Field(min_length=1)
    # Whether full recompute can be limited to the first layers of every chunk.
    recompute_counts: bool = False
    sequence_parallel: Literal["always", "never", "optional"]
    # Axes whose communication overlaps with computation unless a layout says otherwise.
    overlap: tuple[Overlap, ...]
    # How context-parallel ranks share attention; the first is the default.
    cp_kinds: tuple[ContextParallelKind, ...] = Field(min_length=1)
    # What `training.attention: auto` stands for; absent: the accelerator type's fastest kernel.
    attention: AttentionKernels | None = None
    # What the default stage split counts as layers before and after the model's own.
    layers_at_ends: tuple[CountOrZero, CountOrZero] = (0, 0)
    # Which other stage splits can be set: any; only other first and last stages; none.
    stage_splits: Literal["any", "ends", "even"] = "even"
    # Whether the first and the last chunk may have no layer, only embedding, or head and loss.
    empty_end_chunks: bool = False
    # Whether, without sequence parallelism, each tp rank sends only its share of a stage's output.
    scatters_boundaries: bool = False
    # How tokens may travel to experts; empty: models with experts are not supported.
    dispatchers: tuple[Dispatcher, ...] = ()
    # What may be offloaded to the host's memory; offloading nothing is always allowed.
    offloads: tuple[Offload, ...] = ()
    # Whether LM head and loss can run over one chunk of the sequence after the other.
    loss_chunks: bool = False
    # Whether one kernel multiplies for all experts of a rank, or one kernel for each.
    groups_matmuls: bool = False
    gradient_bytes: Bytes
    # Of a parameter's optimizer states: master weight and moments; absent: FP32 ones of Adam, 12 B.
    optimizer_bytes: Bytes | None = None
    # Per token and vocabulary entry at the loss: logits, their FP32 copy, their gradient.
    logits_bytes: Bytes
    # Whether, with ZeRO-1 and 2, each rank broadcasts its updated weights, or all are gathered.
    broadcasts_weights: bool = False
    # Whether gradient buckets have more parameters the more ranks share them.
    buckets_grow: bool = False
    # Per parameter, a gradient before it is accumulated; null: it is accumulated in place.
    fresh_gradient_bytes: Bytes | None = None
    # Whether rotary embedding and the MLP's activation run operator by operator; each operator then
    # keeps its output, unless it is linear.
    eager_elementwise: bool = False
    # Whether norms run operator by operator, with FP32 in between.
    eager_norm: bool = False
    # Whether sequence parallelism keeps the inputs that it gathered before a matmul, instead of
    # gathering them a second time in the backward pass.
    keeps_gathered_inputs: bool = False
    # Whether ZeRO-2 and 3 in a pipeline gather weights and scatter gradients once per step, not
    # once per micro-batch.
    gathers_once_in_pipelines: bool = False
    # Precisions in which sequence parallelism gathers matmul inputs after their cast, not before.
    gathers_as_cast: tuple[TrainingPrecision, ...] = ()
    # Precisions in which ZeRO gathers weights after the cast, not before.
    gathers_weights_as_cast: tuple[TrainingPrecision, ...] = ()
    # Precisions in which only the cast weights are kept, without a 16-bit copy.
    low_precision_parameters: tuple[TrainingPrecision, ...] = ()
    # Whether a rank gathers the logits of all tp ranks for the loss, or keeps its share.
    gathers_logits: bool = False
    # Micro-batches for which the last stage computes the LM head's weight gradients at the end of
    # the step, while it would be idle.
    deferred_head_gradients: CountOrZero = 0
    # Of a process: the accelerator's context and libraries.
    runtime_bytes: Bytes
    # Of the buffers of one communicator.
    communicator_bytes: Bytes
    # What the pools of CUDA graphs hold; absent: nothing.
    graph_pools: GraphPools | None = None
    # Predicted peaks within this share below the capacity are fragile.
    fragile_fraction: Fraction
    coefficients: SoftwareCoefficients

    @property
    def family(self) -> str:
        """The name under which profiles of one framework go together: of `kin`, else its own."""
        return self.kin or self.name

    @property
    def only_1f1b(self) -> bool:
        """Whether every schedule is 1F1B or interleaved: weight gradients are not computed apart
        from input gradients, and no stage holds chunks of both ends of the model."""
        return set(self.schedules) <= {"1f1b", "interleaved"}

    def reserved_layers(self, model: Model) -> tuple[int, int]:
        """Return how many layers the default stage split reserves at the first and the last stage.

        None are reserved of models with a layer pattern, which are split evenly.
        """
        if model.layer_pattern is not None:
            return 0, 0
        first, last = self.layers_at_ends
        return first, last + model.num_reserved_layers

    @field_validator("orders")
    @classmethod
    def _axes_once(
        cls, orders: dict[str, tuple[OrderAxis, ...]]
    ) -> dict[str, tuple[OrderAxis, ...]]:
        for name, axes in orders.items():
            if len(set(axes)) < len(axes):
                raise InputError(
                    "an axis is given twice", key=name, value=axes, allowed="each axis once"
                )
        return orders
