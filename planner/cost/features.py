"""Parts of a model that cost time of their own, and that few measured runs have.

    unmeasured(ctx, measured)         # ("attention sinks",)

What nobody has measured on an accelerator type is predicted from its physics alone: time that the
physics misses makes the run slower, not faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from planner.cost.context import CostContext
from planner.problem.model import Model

FEATURES: Mapping[str, Callable[[Model], bool]] = {
    "experts": lambda model: model.moe is not None,
    "experts with biases": lambda model: model.moe is not None and model.linear_bias,
    "clamped activations": lambda model: model.clamped_activation,
    "attention sinks": lambda model: model.attention_sinks,
    "windowed attention": lambda model: model.sliding_window is not None,
    "latent attention": lambda model: model.mla is not None,
    "Mamba layers": lambda model: model.mamba is not None,
    "multi-token prediction": lambda model: model.mtp_layers > 0,
}
"""Feature, as sentences name it → whether a model has it. Each has a formula of its own."""

Measured = Mapping[str, Sequence[str]]
"""Feature → accelerator types with measured runs of it."""


def features_of(model: Model) -> tuple[str, ...]:
    """The features that a model has."""
    return tuple(name for name, has in FEATURES.items() if has(model))


def unmeasured(ctx: CostContext, measured: Measured) -> tuple[str, ...]:
    """Features of the job's model that no measured run has on its accelerator type."""
    part = ctx.accelerator.name
    return tuple(name for name in features_of(ctx.model) if part not in measured.get(name, ()))
