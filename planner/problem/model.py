"""Language models by their dimensions: transformers, and hybrids with state-space layers."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from planner.errors import InputError
from planner.inputs.quantities import Count, CountOrZero, Layers, Positive, divisors_in_words
from planner.inputs.values import Strict
from planner.problem.blocks import (
    DENSE,
    LINEAR_BIASES,
    MLA,
    SPARSE,
    Biased,
    Block,
    Blocks,
    Mamba,
    MoE,
    check_patterns,
    layers_by_block,
)
from planner.problem.training import FROZEN_PARAMETERS

LAYERS_PER_PREDICTION = 3
"""A prediction layer with its head and loss takes about as long as three layers like its own (so
DeepSeek-V3's published pipeline layouts count it: E t×4 | t×4 … | t m L)."""


def _default_head_dim(data: dict[str, Any]) -> int:
    return max(1, int(data["hidden_size"]) // int(data["num_attention_heads"]))


class Model(Strict):
    """A decoder-only language model; sizes in elements, counts as integers.

    A layer has attention and a feed-forward block or experts. With a `layer_pattern`, one letter
    per layer, a layer is one of these blocks, or a state-space block.
    """

    not_planned = FROZEN_PARAMETERS

    name: str
    source: str
    num_layers: Layers
    hidden_size: Count
    ffn_hidden_size: Count
    num_attention_heads: Count
    num_key_value_heads: Count = Field(
        default_factory=lambda data: int(data["num_attention_heads"])
    )
    head_dim: Count = Field(default_factory=_default_head_dim)
    vocab_size: Count
    gated_mlp: bool
    tied_embeddings: bool
    num_position_embeddings: CountOrZero = 0
    linear_bias: bool = False
    # Matrices with a bias where `linear_bias` does not give it.
    biases: tuple[Biased, ...] = ()
    norm: Literal["rmsnorm", "layernorm"]
    # before: one before each block; around: one before and one after each; shared: one for
    # attention and the feed-forward block side by side.
    block_norms: Literal["before", "around", "shared"] = "before"
    dropout: bool = False
    qk_norm: bool = False
    attention_sinks: bool = False
    # Whether the gated activation clamps its inputs (gpt-oss).
    clamped_activation: bool = False
    published_parameters: Positive | None = None
    published_active_parameters: Positive | None = None
    moe: MoE | None = None
    mla: MLA | None = None
    mamba: Mamba | None = None
    layer_pattern: str | None = None
    mtp_layers: CountOrZero = 0
    # The layers that make up a prediction layer of a model with a layer_pattern.
    mtp_pattern: str | None = None
    # Tokens that a query attends to in `num_windowed_layers` of the layers (default: in all).
    sliding_window: Count | None = None
    num_windowed_layers: CountOrZero | None = None

    @model_validator(mode="after")
    def _patterns_fit(self) -> "Model":
        named = ("mamba", "moe", "mtp_pattern")
        given = {name for name in named if getattr(self, name) is not None}
        check_patterns(
            self.layer_pattern, self.num_layers, self.mtp_pattern, self.mtp_layers, given
        )
        if self.layer_pattern and self.moe:
            for key, usual in (("num_dense_layers", 0), ("layer_period", 1)):
                if getattr(self.moe, key) != usual:
                    raise InputError(
                        f"{key} is given together with layer_pattern, which says where experts are",
                        key=f"moe.{key}",
                        value=getattr(self.moe, key),
                        allowed=f"no {key}",
                    )
        return self

    @model_validator(mode="after")
    def _biases_and_norms_have_a_place(self) -> "Model":
        for place in self.biases:
            wrong = self._no_bias(place)
            if wrong:
                others = "biases of other matrices"
                raise InputError(wrong, key="biases", value=place, allowed=others)
        if self.block_norms == "shared" and self.layer_pattern:
            raise InputError(
                "layers of one block each share no norm",
                key="block_norms",
                value=self.block_norms,
                allowed="before, around",
            )
        return self

    def _no_bias(self, place: Biased) -> str | None:
        """Why a matrix cannot be given a bias in `biases`."""
        if self.biases.count(place) > 1:
            return f"{place} is given twice"
        if self.linear_bias and place in LINEAR_BIASES:
            return f"{place} has its bias from linear_bias"
        if place == "router" and self.moe is None:
            return "a model without experts has no router"
        if self.mla and place in ("qkv", "attention_output"):
            return f"biases of latent attention's {place} are not counted"
        return None

    @model_validator(mode="after")
    def _heads_divide(self) -> "Model":
        heads = self.num_attention_heads
        if heads % self.num_key_value_heads:
            raise InputError(
                f"num_attention_heads {heads} is not a multiple of num_key_value_heads "
                f"{self.num_key_value_heads}",
                key="num_key_value_heads",
                value=self.num_key_value_heads,
                allowed=f"a divisor of {heads}: {divisors_in_words(heads)}",
            )
        if "head_dim" not in self.model_fields_set and self.hidden_size % heads:
            raise InputError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {heads} "
                "and head_dim is not given",
                key="num_attention_heads",
                value=heads,
                allowed=f"a divisor of {self.hidden_size}, or head_dim given",
            )
        return self

    @model_validator(mode="after")
    def _experts_have_layers(self) -> "Model":
        if self.moe and not self.layer_pattern and not self.num_moe_layers:
            raise InputError(
                f"num_dense_layers {self.moe.num_dense_layers} and layer_period "
                f"{self.moe.layer_period} leave none of {self.num_layers} layers to experts",
                key="moe.num_dense_layers",
                value=self.moe.num_dense_layers,
                allowed=f"an integer from 0 to {max(self.num_layers - self.moe.layer_period, 0)}",
            )
        return self

    @model_validator(mode="after")
    def _windows_have_layers(self) -> "Model":
        windowed, most = self.num_windowed_layers, self.num_attention_layers
        if windowed is not None and (self.sliding_window is None or windowed > most):
            raise InputError(
                f"num_windowed_layers {windowed} of {most} layers with sliding_window "
                f"{self.sliding_window}",
                key="num_windowed_layers",
                value=windowed,
                allowed=f"an integer from 0 to {most}, together with sliding_window",
            )
        return self

    @property
    def layers_by_blocks(self) -> Mapping[Blocks, int]:
        """How many of `num_layers` have which blocks: dense layers before those with experts, those
        of a pattern in the order of LETTERS."""
        if self.layer_pattern is None:
            counts = {DENSE: self.num_layers - self.num_moe_layers, SPARSE: self.num_moe_layers}
            return {blocks: count for blocks, count in counts.items() if count}
        return layers_by_block(self.layer_pattern)

    @property
    def prediction_blocks(self) -> Mapping[Blocks, int]:
        """How many layers of which blocks make up one multi-token prediction layer."""
        if self.mtp_pattern is None:
            return {SPARSE if self.moe else DENSE: 1}
        return layers_by_block(self.mtp_pattern)

    @property
    def num_attention_layers(self) -> int:
        """Layers with attention among `num_layers`."""
        return self.num_layers if self.layer_pattern is None else self.layer_pattern.count("*")

    @property
    def num_moe_layers(self) -> int:
        """Layers with experts among `num_layers`."""
        if self.moe is None:
            return 0
        if self.layer_pattern is not None:
            return self.layer_pattern.count("E")
        return max(self.num_layers - self.moe.num_dense_layers, 0) // self.moe.layer_period

    @property
    def qk_head_dim(self) -> int:
        """Elements of a head's query and key."""
        return self.mla.qk_head_dim if self.mla else self.head_dim

    @property
    def v_head_dim(self) -> int:
        """Elements of a head's value."""
        return self.mla.v_head_dim if self.mla else self.head_dim

    @property
    def num_attention_parameters(self) -> int:
        """Parameters of one layer's attention with its input norm."""
        hidden, heads = self.hidden_size, self.num_attention_heads
        if self.mla:
            latent = self._latent_attention_parameters(self.mla)
            return latent + self._norms_of("attention") + self.attention_sinks * heads
        query, key_value = heads * self.head_dim, self.num_key_value_heads * self.head_dim
        weights = hidden * (query + 2 * key_value) + query * hidden
        biases = self.has_bias("qkv") * (query + 2 * key_value)
        biases += self.has_bias("attention_output") * hidden
        scales = 4 if self.norm == "layernorm" else 2  # of queries and keys, with their shifts
        norms = self._norms_of("attention") + self.qk_norm * scales * self.head_dim
        return weights + biases + norms + self.attention_sinks * heads

    def _latent_attention_parameters(self, mla: MLA) -> int:
        """Parameters of queries, keys, values, output and the norms of what is low-rank."""
        hidden, heads = self.hidden_size, self.num_attention_heads
        query = heads * mla.qk_head_dim
        if mla.q_lora_rank:
            queries = hidden * mla.q_lora_rank + mla.q_lora_rank * (query + 1)
        else:
            queries = hidden * query
        latent = hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim) + mla.kv_lora_rank
        keys_values = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        return queries + latent + keys_values + heads * mla.v_head_dim * hidden

    @property
    def num_mamba_parameters(self) -> int:
        """Parameters of one state-space block with its input norm.

        Both projections; the convolution with its biases; for each head a decay, a skip and the
        bias of its step; the scale of the gated norm.
        """
        if self.mamba is None:
            return 0
        mamba = self.mamba
        projections = self.hidden_size * (mamba.projected_size + mamba.inner_size)
        convolution = mamba.conv_size * (mamba.conv_kernel + 1)
        return (
            projections
            + convolution
            + 3 * mamba.num_heads
            + mamba.inner_size
            + self.num_norm_parameters
        )

    def num_mlp_parameters(self, ffn: int, width: int | None = None) -> int:
        """Return the parameters of one feed-forward block, without its norm.

        Args:
            ffn: elements between its two matmuls.
            width: elements of its inputs and outputs; the hidden size unless given.
        """
        width = width or self.hidden_size
        up = 2 * ffn if self.gated_mlp else ffn
        biases = up + width if self.has_bias("mlp") else 0
        return width * up + ffn * width + biases

    def num_block_parameters(self, block: Block) -> int:
        """Return the parameters of one block of a layer and its norms, without routed experts."""
        if block == "attention":
            return self.num_attention_parameters
        if block == "mamba":
            return self.num_mamba_parameters
        if block == "mlp":
            return self.num_mlp_parameters(self.ffn_hidden_size) + self._norms_of(block)
        return self._norms_of(block) + self._num_parameters_around_experts

    @property
    def _num_parameters_around_experts(self) -> int:
        """Parameters of the router, of shared experts, and of projections to a latent and back."""
        if self.moe is None:
            return 0
        parameters = (self.hidden_size + self.has_bias("router")) * self.moe.num_experts
        if self.moe.num_shared_experts:
            parameters += self.num_mlp_parameters(self.shared_ffn_hidden_size)
            parameters += self.moe.shared_expert_gate * self.hidden_size
        if self.moe.latent_size:
            latent, biases = self.moe.latent_size, self.linear_bias
            parameters += 2 * self.hidden_size * latent + biases * (self.hidden_size + latent)
        return parameters

    def num_parameters_of(self, blocks: Blocks) -> int:
        """Return the parameters of one layer of these blocks, without routed experts."""
        return sum(self.num_block_parameters(block) for block in blocks)

    @property
    def expert_hidden_size(self) -> int:
        """Elements of a token as routed experts see it."""
        return (self.moe and self.moe.latent_size) or self.hidden_size

    @property
    def num_expert_parameters(self) -> int:
        """Parameters of all routed experts of one layer."""
        if self.moe is None:
            return 0
        ffn = self.moe.expert_ffn_hidden_size
        return self.moe.num_experts * self.num_mlp_parameters(ffn, self.expert_hidden_size)

    @property
    def shared_ffn_hidden_size(self) -> int:
        """Feed-forward size of all shared experts of a layer together."""
        if self.moe is None:
            return 0
        moe = self.moe
        size = moe.shared_expert_ffn_hidden_size or moe.expert_ffn_hidden_size
        return moe.num_shared_experts * size

    @property
    def num_norm_parameters(self) -> int:
        """Parameters of one norm: a scale, and in LayerNorm a shift."""
        return self.hidden_size * (2 if self.norm == "layernorm" else 1)

    def has_bias(self, place: Biased) -> bool:
        """Whether these matrices have biases."""
        return place in self.biases or (self.linear_bias and place in LINEAR_BIASES)

    def num_norms(self, blocks: Blocks) -> int:
        """Return the norms of a layer of these blocks, without those of queries and keys."""
        return {"before": len(blocks), "around": 2 * len(blocks), "shared": 1}[self.block_norms]

    def _norms_of(self, block: Block) -> int:
        """Parameters of a block's norms; a norm that blocks share counts with attention."""
        counts_here = self.block_norms != "shared" or block == "attention"
        return counts_here * self.num_norms((block,)) * self.num_norm_parameters

    @property
    def num_embedding_parameters(self) -> int:
        """Parameters of the word and the learned position embeddings."""
        return (self.vocab_size + self.num_position_embeddings) * self.hidden_size

    @property
    def num_head_parameters(self) -> int:
        """Parameters of the LM head: its bias, and its matrix unless that is the embedding's."""
        width = self.hidden_size * (not self.tied_embeddings) + self.has_bias("head")
        return self.vocab_size * width

    @property
    def num_prediction_parameters(self) -> int:
        """Parameters of one multi-token prediction layer: projection, its norms, and its layers."""
        projection = 2 * self.hidden_size * self.hidden_size + 3 * self.num_norm_parameters
        layers = (
            count
            * (self.num_parameters_of(blocks) + ("experts" in blocks) * self.num_expert_parameters)
            for blocks, count in self.prediction_blocks.items()
        )
        return projection + sum(layers)

    @property
    def num_reserved_layers(self) -> int:
        """How many layers fewer a pipeline's last chunk has, for the prediction layers on it.

        0 of models with a layer pattern, which are split evenly.
        """
        return 0 if self.layer_pattern else LAYERS_PER_PREDICTION * self.mtp_layers

    @property
    def num_parameters(self) -> int:
        """Embedding + layers + final norm + head, without multi-token prediction layers."""
        experts = self.num_moe_layers * self.num_expert_parameters
        return experts + self._num_dense_parameters

    @property
    def num_active_parameters(self) -> int:
        """Parameters that a token uses: `top_k` of a layer's routed experts, all of the others."""
        if self.moe is None:
            return self.num_parameters
        visited = self.num_expert_parameters * self.moe.top_k // self.moe.num_experts
        return self._num_dense_parameters + self.num_moe_layers * visited

    @property
    def _num_dense_parameters(self) -> int:
        """Parameters outside routed experts."""
        layers = sum(
            count * self.num_parameters_of(blocks)
            for blocks, count in self.layers_by_blocks.items()
        )
        embeddings = self.num_embedding_parameters + self.num_head_parameters
        return embeddings + layers + self.num_norm_parameters
