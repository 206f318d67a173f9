"""Quantities told apart by pass: forward and backward, or forward and both kinds of gradients.

A layer's backward pass computes the gradients of its inputs, for which the layer before it waits,
and the gradients of its weights, for which only the optimizer waits. Most schedules compute both
at once (`ForwardBackward`); zero-bubble schedules move the second into idle time (`Passes`).
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.layouts.numeric import Numeric


@dataclass(frozen=True, slots=True)
class ForwardBackward:
    """One quantity of the forward and of the backward pass: seconds, bytes, FLOPs, kernels."""

    forward: Numeric
    backward: Numeric

    @property
    def both(self) -> Numeric:
        """The quantity of both passes together."""
        return self.forward + self.backward

    def __add__(self, other: ForwardBackward) -> ForwardBackward:
        return ForwardBackward(self.forward + other.forward, self.backward + other.backward)

    def times(self, number: Numeric) -> ForwardBackward:
        """Both passes' quantities, so many times."""
        return ForwardBackward(self.forward * number, self.backward * number)


@dataclass(frozen=True, slots=True)
class Passes:
    """Seconds of a micro-batch's forward pass, gradients of inputs and gradients of weights."""

    forward: Numeric
    input_gradients: Numeric
    weight_gradients: Numeric

    def __add__(self, other: Passes) -> Passes:
        return Passes(
            self.forward + other.forward,
            self.input_gradients + other.input_gradients,
            self.weight_gradients + other.weight_gradients,
        )

    def times(self, number: Numeric) -> Passes:
        """The passes of so many layers, micro-batches or stages."""
        return Passes(
            number * self.forward, number * self.input_gradients, number * self.weight_gradients
        )
