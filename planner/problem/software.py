"""Software profiles: what a training framework allows, and the few numbers it costs."""

from typing import Annotated, Literal

from annotated_types import Le
from pydantic import Field, field_validator

from planner.errors import InputError
from planner.inputs.quantities import Bytes, CountOrZero, Fraction, NotNegative, Positive, Seconds
from planner.inputs.values import Strict
from planner.layouts.keys import (
    ContextParallelKind,
    Dispatcher,
    Offload,
    Overlap,
    Recompute,
    Schedule,
)
from planner.problem.model import Model
from planner.problem.recipes import TrainingPrecision

OrderAxis = Literal["tp", "cp", "ep", "etp", "edp", "dp", "dp_shard", "dp_replicate", "pp"]
ZeroStage = Annotated[CountOrZero, Le(3)]


class SoftwareCoefficients(Strict):
    """Overlaps as shares of a group's busy time that compute can hide, overheads, margins."""

    tp_overlap_fraction: Fraction
    dp_overlap_fraction: Fraction
    pp_overlap_fraction: Fraction
    memory_bound_multiplier: Positive
    host_seconds_per_kernel: Seconds
    straggler_fraction_per_doubling: NotNegative
    step_overhead_seconds: Seconds
    allocator_fraction: Fraction


class Software(Strict):
    """A framework's rules (ids), rank orders (innermost axis first), schedules and numbers."""

    name: str
    description: str
    frameworks: tuple[str, ...] = ()
    # A profile of the same framework run in another way, whose coefficients mean the same.
    kin: str | None = None
    rules: tuple[str, ...]
    orders: dict[str, tuple[OrderAxis, ...]] = Field(min_length=1)
    schedules: tuple[Schedule, ...] = Field(min_length=1)
    zero_stages: tuple[ZeroStage, ...] = Field(min_length=1)
    shard_groups: Literal["full", "any"]
    recompute: tuple[Recompute, ...] = Field(min_length=1)
    # Whether full recomputation can stop after the first layers of every chunk.
    recompute_counts: bool = False
    sequence_parallel: Literal["always", "never", "optional"]
    # What runs beside computation unless a layout says otherwise.
    overlap: tuple[Overlap, ...]
    # How context-parallel ranks share attention; the first is the usual one.
    cp_kinds: tuple[ContextParallelKind, ...] = Field(min_length=1)
    # What the usual split of a pipeline counts as layers before and after the model's.
    layers_at_ends: tuple[CountOrZero, CountOrZero] = (0, 0)
    # Which other splits it can be told: any, first and last stage of their own, none.
    stage_splits: Literal["any", "ends", "even"] = "even"
    # Whether the first and the last chunk may hold no layer beside embedding, head and loss.
    empty_end_chunks: bool = False
    # Whether without sequence parallelism each tp rank sends its part of a stage's output alone.
    scatters_boundaries: bool = False
    # How tokens may travel to experts; none: no experts.
    dispatchers: tuple[Dispatcher, ...] = ()
    # What may live in the host's memory; nothing always may.
    offloads: tuple[Offload, ...] = ()
    # Whether one kernel multiplies for all experts of a rank, or one after another.
    groups_matmuls: bool = False
    gradient_bytes: Bytes
    # Held per token and vocabulary entry at the loss: logits, their FP32 copy, their gradient.
    logits_bytes: Bytes
    # Whether with ZeRO-1 and 2 each rank broadcasts its updated weights, or all are gathered.
    broadcasts_weights: bool = False
    # Whether buckets of gradients hold more parameters the more ranks share them.
    buckets_grow: bool = False
    # A weight's gradient before it is added to those held, per parameter; null: made in place.
    fresh_gradient_bytes: Bytes | None = None
    # Whether rotary embedding and the MLP's activation run operator by operator, each keeping its
    # output but where it is linear.
    eager_elementwise: bool = False
    # Whether norms run operator by operator, with FP32 in between.
    eager_norm: bool = False
    # Whether sequence parallelism keeps what it gathered before a matmul, not to gather it again.
    keeps_gathered_inputs: bool = False
    # Whether ZeRO-3 in a pipeline gathers weights and scatters gradients once a step.
    gathers_once_in_pipelines: bool = False
    # Precisions in which sequence parallelism gathers what matmuls read after the cast, not before.
    gathers_as_cast: tuple[TrainingPrecision, ...] = ()
    # Precisions in which ZeRO gathers weights after the cast, not before.
    gathers_weights_as_cast: tuple[TrainingPrecision, ...] = ()
    # Precisions whose weights are held as matmuls read them alone.
    low_precision_parameters: tuple[TrainingPrecision, ...] = ()
    # Whether a rank gathers logits of the whole vocabulary for the loss, or keeps its tp share.
    gathers_logits: bool = False
    # Context and libraries of a process; one live communicator's buffers.
    runtime_bytes: Bytes
    communicator_bytes: Bytes
    # Predictions within this share below the capacity are fragile.
    fragile_fraction: Fraction
    coefficients: SoftwareCoefficients

    @property
    def family(self) -> str:
        """What profiles of one framework share."""
        return self.kin or self.name

    @property
    def only_1f1b(self) -> bool:
        """Whether all pipelines are 1F1B or interleaved: no weight gradients apart, no folds."""
        return set(self.schedules) <= {"1f1b", "interleaved"}

    def reserved_layers(self, model: Model) -> tuple[int, int]:
        """What the usual split counts as layers at the first and last stage of a model's pipeline.

        Nothing that counts where a layer pattern is split evenly.
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
