"""What layers are made of: attention, feed-forward blocks, experts, state-space blocks; and the
patterns of letters that say which layer has which.

Sizes are in elements; counts are integers.
"""

from collections.abc import Collection, Mapping
from typing import Literal

from pydantic import model_validator

from planner.errors import InputError
from planner.inputs.quantities import Count, CountOrZero, divisors_in_words
from planner.inputs.values import Strict

Block = Literal["mamba", "attention", "mlp", "experts"]

Blocks = tuple[Block, ...]
"""The blocks of a layer, one after another, each with a norm before and a residual around it."""

DENSE: Blocks = ("attention", "mlp")
SPARSE: Blocks = ("attention", "experts")
"""The layers of a transformer, without and with experts."""

Biased = Literal["qkv", "attention_output", "mlp", "router", "head"]
"""Matrices that may have a bias: of queries, keys and values, of attention's output, of the
feed-forward blocks and experts, of the router, of the LM head."""

LINEAR_BIASES: tuple[Biased, ...] = ("qkv", "attention_output", "mlp")
"""The matrices to which `linear_bias` gives a bias."""


# ---------------------------------------------------------------- dimensions of blocks


class MLA(Strict):
    """Multi-head latent attention: low-rank queries and keys/values.

    DeepSeek-V2 (arXiv 2405.04434, section 2.1). Without `q_lora_rank`, queries have full rank.
    """

    q_lora_rank: Count | None = None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count

    @property
    def qk_head_dim(self) -> int:
        """Elements of a head's query or key: those without and those with rotary positions."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim


class MoE(Strict):
    """Mixture of experts: of the layers after `num_dense_layers`, the last of every `layer_period`.

    A token visits `top_k` of `num_experts` and all of `num_shared_experts`, each a feed-forward
    block of `expert_ffn_hidden_size` (shared ones of `shared_expert_ffn_hidden_size` if given). A
    `shared_expert_gate` of one column weighs the output of the shared ones. With a `latent_size`
    a projection takes tokens down to it before they travel to the routed experts, which work at
    that width, and another one takes them up afterwards.
    """

    num_experts: Count
    top_k: Count
    expert_ffn_hidden_size: Count
    num_shared_experts: CountOrZero = 0
    shared_expert_ffn_hidden_size: Count | None = None
    shared_expert_gate: bool = False
    num_dense_layers: CountOrZero = 0
    layer_period: Count = 1
    latent_size: Count | None = None

    @model_validator(mode="after")
    def _top_k_fits(self) -> "MoE":
        if self.top_k > self.num_experts:
            raise InputError(
                f"top_k {self.top_k} exceeds num_experts {self.num_experts}",
                key="top_k",
                value=self.top_k,
                allowed=f"an integer from 1 to {self.num_experts}",
            )
        return self

    @model_validator(mode="after")
    def _shared_experts_exist(self) -> "MoE":
        for key in ("shared_expert_ffn_hidden_size", "shared_expert_gate"):
            if getattr(self, key) and not self.num_shared_experts:
                raise InputError(
                    f"{key} is given, and there are no shared experts",
                    key=key,
                    value=getattr(self, key),
                    allowed=f"num_shared_experts from 1, or no {key}",
                )
        return self


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
        """Elements with which all groups write to the state (B), or read it (C)."""
        return self.num_groups * self.state_size

    @property
    def conv_size(self) -> int:
        """Channels of the convolution: heads' inputs, B and C."""
        return self.inner_size + 2 * self.state_input_size

    @property
    def projected_size(self) -> int:
        """Outputs of the input projection: the gate, the convolution's input, one step per head."""
        return self.inner_size + self.conv_size + self.num_heads


# ---------------------------------------------------------------- layer patterns

LETTERS: Mapping[str, Block] = {"M": "mamba", "*": "attention", "-": "mlp", "E": "experts"}
"""Layers of one block, as `layer_pattern` writes them (Megatron-LM's hybrid patterns)."""

_KEY_OF_LETTER: Mapping[str, str] = {"M": "mamba", "E": "moe"}
"""Letters whose block needs a mapping of its own in the model file."""


def layers_by_block(pattern: str) -> dict[Blocks, int]:
    """Return how many layers of each block a pattern has, in the order of LETTERS."""
    counts = {(block,): pattern.count(letter) for letter, block in LETTERS.items()}
    return {blocks: count for blocks, count in counts.items() if count}


def check_patterns(
    layer_pattern: str | None,
    num_layers: int,
    mtp_pattern: str | None,
    mtp_layers: int,
    given: Collection[str],
) -> None:
    """Check a model's patterns against each other and against the blocks that it describes.

    Args:
        layer_pattern: one letter per layer; None of a model of dense and sparse layers.
        mtp_pattern: the layers that a prediction layer is made of.
        given: which of the keys mamba, moe and mtp_pattern the model has.

    Raises:
        InputError: an unknown letter, a letter without its block, a block without its letter, or
            a number of letters that is not the number of layers.
    """
    if layer_pattern is None:
        for name in {"mamba", "mtp_pattern"} & set(given):
            raise InputError(
                f"{name} needs a layer_pattern, which says where it goes",
                key=name,
                allowed="a layer_pattern of the letters " + " ".join(LETTERS),
            )
        return
    _check_letters("layer_pattern", layer_pattern, given)
    if len(layer_pattern) != num_layers:
        raise InputError(
            f"layer_pattern has {len(layer_pattern)} letters for {num_layers} layers",
            key="layer_pattern",
            value=layer_pattern,
            allowed=f"{num_layers} letters, or num_layers {len(layer_pattern)}",
        )
    if (mtp_pattern is None) != (mtp_layers == 0):
        raise InputError(
            f"mtp_pattern {mtp_pattern!r} with mtp_layers {mtp_layers}",
            key="mtp_pattern",
            value=mtp_pattern,
            allowed="the layers of a prediction layer where there are any, such as '*E'",
        )
    if mtp_pattern is not None:
        _check_letters("mtp_pattern", mtp_pattern, given)
    for letter, name in _KEY_OF_LETTER.items():
        if name in given and letter not in layer_pattern:
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
    for letter, name in _KEY_OF_LETTER.items():
        if letter in pattern and name not in given:
            raise InputError(
                f"{key} has {letter} layers, and the model no {name}",
                key=key,
                value=pattern,
                allowed=f"{name} given, or no {letter}",
            )
