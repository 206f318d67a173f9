"""Precisions: of matmuls, and of training with its low-precision recipes as data.

A recipe runs the layers' weight matmuls, those of experts included, in few bits; the LM head, the
embedding, routers, norms and attention's core stay in 16 (Transformer Engine's te.Linear and
torchao's Float8Linear alike). It says what is cast, how often, and into what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Precision = Literal["bf16", "fp16", "fp8", "fp4"]
"""What a matmul's inputs are; each has a dense peak of its own."""

ELEMENT_BYTES: Mapping[Precision, float] = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp4": 0.5625}
"""Bytes per matmul input; FP4 carries a scale of one byte for each 16 elements (NVFP4)."""

TrainingPrecision = Literal["bf16", "fp16", "fp8", "fp8-rowwise", "mxfp8", "fp8-blockwise", "nvfp4"]
"""What `training.precision` may be: a plain 16-bit format, or a recipe of `RECIPES`."""


@dataclass(frozen=True, slots=True)
class Casts:
    """HBM passes of casting an element: (reads in 16 bits, writes in the matmuls' precision).

    Attributes:
        input_forward, input_backward: of a matmul's input, in the forward and the backward pass.
        gradient: of the gradient of a matmul's output.
        weight_forward, weight_backward: of a weight, per micro-batch.
    """

    input_forward: tuple[float, float]
    input_backward: tuple[float, float] = (0.0, 0.0)
    gradient: tuple[float, float] = (0.0, 0.0)
    weight_forward: tuple[float, float] = (0.0, 0.0)
    weight_backward: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Recipe:
    """One precision of training.

    Attributes:
        peak: the precision whose dense peak its matmuls run against.
        scales: how many elements share a scale, in words.
        casts: what casting takes.
        source: where the recipe is from.
    """

    peak: Precision
    scales: str
    casts: Casts
    source: str


NO_CASTS = Casts((0.0, 0.0))

CAST_ONCE = Casts(input_forward=(1.0, 2.0), gradient=(1.0, 2.0))
"""Read once, and written by rows and by columns, or as it is and transposed; weights are cast once
a step, which is negligible."""

CAST_PER_MATMUL = Casts(
    input_forward=(1.0, 1.0), input_backward=(2.0, 1.0), gradient=(3.0, 2.0),
    weight_forward=(1.0, 1.0), weight_backward=(2.0, 1.0),
)  # fmt: skip
"""Each operand is cast anew for each matmul. Along a row, maximum and cast are one pass; across
rows the maxima must be known first, which takes one more pass of reading. Weights, gathered in 16
bits, are cast in every forward and every backward pass."""

RECIPES: Mapping[TrainingPrecision, Recipe] = {
    "bf16": Recipe("bf16", "none", NO_CASTS, "definition"),
    "fp16": Recipe("fp16", "none", NO_CASTS, "definition"),
    "fp8": Recipe(
        "fp8",
        "one a tensor",
        CAST_ONCE,
        "Transformer Engine, DelayedScaling and Float8CurrentScaling: Hopper's FP8 matmuls take "
        "operands by rows only, so a transposed copy is written",
    ),
    "fp8-rowwise": Recipe(
        "fp8",
        "one a row, of each operand of each matmul",
        CAST_PER_MATMUL,
        "torchao 0.14 float8/float8_linear.py (matmul_with_hp_or_float8_args): saves 16-bit "
        "inputs, casts each of the six operands by itself",
    ),
    "fp8-blockwise": Recipe(
        "fp8",
        "one for 1 x 128 of activations, for 128 x 128 of weights",
        CAST_ONCE,
        "DeepSeek-V3 (arXiv 2412.19437, section 3.3); Transformer Engine, Float8BlockScaling",
    ),
    "mxfp8": Recipe(
        "fp8",
        "one for 32",
        CAST_ONCE,
        "OCP Microscaling Formats 1.0; Transformer Engine, MXFP8BlockScaling: cast by rows and by "
        "columns, for scales differ",
    ),
    "nvfp4": Recipe(
        "fp4",
        "one for 16 and one a tensor",
        CAST_ONCE,
        "NVIDIA, Pretraining LLMs with NVFP4 (arXiv 2509.25149): Hadamard transform and stochastic "
        "rounding inside the casts; layers it keeps in BF16 are not told apart",
    ),
}
"""The recipe of each training precision."""
