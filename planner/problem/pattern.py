"""Layers of one block each, as a pattern of letters, and Mamba-2's state-space block."""

from collections.abc import Collection, Mapping
from typing import Literal

from pydantic import model_validator

from planner.errors import InputError
from planner.inputs.quantities import Count, divisors_in_words
from planner.inputs.values import Strict

Block = Literal["mamba", "attention", "mlp", "experts"]
Blocks = tuple[Block, ...]
"""What a layer does, one after another, each with a norm before and a residual around it."""

LETTERS: Mapping[str, Block] = {"M": "mamba", "*": "attention", "-": "mlp", "E": "experts"}
"""Layers of one block, as `layer_pattern` writes them (Megatron-LM's hybrid patterns)."""

DENSE: Blocks = ("attention", "mlp")
SPARSE: Blocks = ("attention", "experts")
"""Layers of a transformer."""

DESCRIBED: Mapping[str, str] = {"M": "mamba", "E": "moe"}
"""Letters whose block has a mapping of its own in a model."""


class Mamba(Strict):
    """Mamba-2 state-space layers (Dao & Gu 2024, arXiv 2405.21060).

    Heads of `head_dim` carry a state of `head_dim` × `state_size` along the sequence; those of a
    group share what writes to it and reads from it. Kernels work through chunks of `chunk_size`
    tokens, after a causal convolution over `conv_kernel` tokens.
    """

    state_size: Count
    num_heads: Count
    head_dim: Count
    num_groups: Count
    conv_kernel: Count = 4
    chunk_size: Count = 128

    @model_validator(mode="after")
    def _groups_divide(self) -> "Mamba":
        if self.num_heads % self.num_groups:
            raise InputError(
                f"num_heads {self.num_heads} is not a multiple of num_groups {self.num_groups}",
                key="num_groups",
                value=self.num_groups,
                allowed=f"a divisor of {self.num_heads}: {divisors_in_words(self.num_heads)}",
            )
        return self

    @property
    def inner_size(self) -> int:
        """Elements of all heads' inputs, or outputs, per token."""
        return self.num_heads * self.head_dim

    @property
    def state_input_size(self) -> int:
        """Elements of what all groups write to the state with (B), or read it with (C)."""
        return self.num_groups * self.state_size

    @property
    def conv_size(self) -> int:
        """Channels of the convolution: heads' inputs, B and C."""
        return self.inner_size + 2 * self.state_input_size

    @property
    def projected_size(self) -> int:
        """Outputs of the input projection: the gate, the convolution's input, a step a head."""
        return self.inner_size + self.conv_size + self.num_heads


def counted(pattern: str) -> dict[Blocks, int]:
    """How many layers of each block a pattern has, in the order of LETTERS."""
    counts = {(block,): pattern.count(letter) for letter, block in LETTERS.items()}
    return {blocks: count for blocks, count in counts.items() if count}


def check_patterns(
    layers: str | None, num_layers: int, prediction: str | None, mtp_layers: int,
    given: Collection[str],
) -> None:  # fmt: skip
    """Each letter has its block among those `given`, each block a letter, each layer a letter.

    Raises:
        InputError: that is not so.
    """
    if layers is None:
        for name in {"mamba", "mtp_pattern"} & set(given):
            raise InputError(
                f"{name} needs a layer_pattern, which says where it goes",
                key=name,
                allowed="a layer_pattern of the letters " + " ".join(LETTERS),
            )
        return
    _check_letters("layer_pattern", layers, given)
    if len(layers) != num_layers:
        raise InputError(
            f"layer_pattern has {len(layers)} letters for {num_layers} layers",
            key="layer_pattern",
            value=layers,
            allowed=f"{num_layers} letters, or num_layers {len(layers)}",
        )
    if (prediction is None) != (mtp_layers == 0):
        raise InputError(
            f"mtp_pattern {prediction!r} with mtp_layers {mtp_layers}",
            key="mtp_pattern",
            value=prediction,
            allowed="the layers of a prediction layer where there are any, such as '*E'",
        )
    if prediction is not None:
        _check_letters("mtp_pattern", prediction, given)
    for letter, name in DESCRIBED.items():
        if name in given and letter not in layers:
            raise InputError(
                f"{name} is given, and layer_pattern has no {letter}",
                key=name,
                allowed=f"a layer_pattern with {letter}, or no {name}",
            )


def _check_letters(key: str, pattern: str, given: Collection[str]) -> None:
    """Raise unless all letters are known and have their block."""
    wrong = next((i for i, letter in enumerate(pattern) if letter not in LETTERS), None)
    if wrong is not None or not pattern:
        upper = pattern.upper()
        raise InputError(
            "has no letter" if wrong is None else f"layer {wrong + 1} is {pattern[wrong]!r}",
            key=key,
            value=pattern,
            allowed="letters " + ", ".join(f"{mark} ({block})" for mark, block in LETTERS.items()),
            nearest=upper if pattern and set(upper) <= set(LETTERS) else None,
        )
    for letter, name in DESCRIBED.items():
        if letter in pattern and name not in given:
            raise InputError(
                f"{key} has {letter} layers, and the model no {name}",
                key=key,
                value=pattern,
                allowed=f"{name} given, or no {letter}",
            )
