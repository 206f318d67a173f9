"""Low-precision recipes as data: what each casts, how often, and into what.

A recipe turns the layers' weight matmuls, experts' among them, to few bits; the LM head, the
embedding, routers, norms and attention's core stay in 16 (Transformer Engine's te.Linear and
torchao's Float8Linear alike).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from planner.problem.hardware import Precision

TrainingPrecision = Literal["bf16", "fp16", "fp8", "fp8-rowwise", "mxfp8", "fp8-blockwise", "nvfp4"]


@dataclass(frozen=True, slots=True)
class Casts:
    """HBM passes of casting an element: reads in 16 bits, writes in the matmuls' precision.

    of input: an element that a matmul reads, of its forward pass and again on its backward pass;
    of gradient: of its output's gradient; of weight: each micro-batch, forward and backward.
    """

    input_forward: tuple[float, float]
    input_backward: tuple[float, float] = (0.0, 0.0)
    gradient: tuple[float, float] = (0.0, 0.0)
    weight_forward: tuple[float, float] = (0.0, 0.0)
    weight_backward: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Recipe:
    """One precision of training: the peak its matmuls run against, its scales and its casts."""

    peak: Precision
    scales: str
    casts: Casts
    source: str


NOTHING = Casts((0.0, 0.0))

ONCE = Casts(input_forward=(1.0, 2.0), gradient=(1.0, 2.0))
"""Read once, written by rows and by columns, or as it is and transposed; weights are cast once a
step, which is beside nothing."""

BY_DIMENSION = Casts(
    input_forward=(1.0, 1.0), input_backward=(2.0, 1.0), gradient=(3.0, 2.0),
    weight_forward=(1.0, 1.0), weight_backward=(2.0, 1.0),
)  # fmt: skip
"""Each operand cast anew for each matmul. Along a row, maximum and cast are one pass; across rows
the maxima must be known first: a pass of reading more. Weights, gathered in 16 bits, are cast in
every forward and every backward pass."""

RECIPES: Mapping[TrainingPrecision, Recipe] = {
    "bf16": Recipe("bf16", "none", NOTHING, "definition"),
    "fp16": Recipe("fp16", "none", NOTHING, "definition"),
    "fp8": Recipe(
        "fp8",
        "one a tensor",
        ONCE,
        "Transformer Engine, DelayedScaling and Float8CurrentScaling: Hopper's FP8 matmuls take "
        "operands by rows alone, so a transposed copy is written",
    ),
    "fp8-rowwise": Recipe(
        "fp8",
        "one a row, of each operand of each matmul",
        BY_DIMENSION,
        "torchao 0.14 float8/float8_linear.py (matmul_with_hp_or_float8_args): saves 16-bit "
        "inputs, casts each of the six operands by itself",
    ),
    "fp8-blockwise": Recipe(
        "fp8",
        "one for 1 x 128 of activations, for 128 x 128 of weights",
        ONCE,
        "DeepSeek-V3 (arXiv 2412.19437, section 3.3); Transformer Engine, Float8BlockScaling",
    ),
    "mxfp8": Recipe(
        "fp8",
        "one for 32",
        ONCE,
        "OCP Microscaling Formats 1.0; Transformer Engine, MXFP8BlockScaling: cast by rows and by "
        "columns, for scales differ",
    ),
    "nvfp4": Recipe(
        "fp4",
        "one for 16 and one a tensor",
        ONCE,
        "NVIDIA, Pretraining LLMs with NVFP4 (arXiv 2509.25149): Hadamard transform and stochastic "
        "rounding inside the casts; layers it keeps in BF16 are not told apart",
    ),
}
"""By a training's precision."""
