"""Transformer language models by their dimensions."""

from typing import Any, Literal

from pydantic import Field, model_validator

from planner.errors import InputError
from planner.files import Strict
from planner.problem.frozen import FROZEN
from planner.problem.quantities import Count, CountOrZero, Layers, Positive


class MoE(Strict):
    """Mixture of experts: of the layers after `num_dense_layers`, the last of every `layer_period`.

    A token visits `top_k` of `num_experts` and all of `num_shared_experts`, each a feed-forward
    block of `expert_ffn_hidden_size`.
    """

    num_experts: Count
    top_k: Count
    expert_ffn_hidden_size: Count
    num_shared_experts: CountOrZero = 0
    num_dense_layers: CountOrZero = 0
    layer_period: Count = 1

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


class MLA(Strict):
    """Multi-head latent attention: low-rank queries and keys/values."""

    q_lora_rank: Count | None = None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count

    @property
    def qk_head_dim(self) -> int:
        """Elements of a head's query or key: the part without and with rotary positions."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim


LAYERS_PER_PREDICTION = 3
"""A prediction layer with its head and loss takes about as long as three layers of its kind (so
DeepSeek-V3's published pipeline layouts count it: E t×4 | t×4 … | t m L)."""


def _default_head_dim(data: dict[str, Any]) -> int:
    return max(1, int(data["hidden_size"]) // int(data["num_attention_heads"]))


class Model(Strict):
    """A decoder-only transformer; sizes in elements, counts as integers."""

    not_planned = FROZEN

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
    norm: Literal["rmsnorm", "layernorm"]
    dropout: bool = False
    qk_norm: bool = False
    published_parameters: Positive | None = None
    published_active_parameters: Positive | None = None
    moe: MoE | None = None
    mla: MLA | None = None
    mtp_layers: CountOrZero = 0
    # Tokens a query sees in `num_windowed_layers` of the layers (default: in all of them).
    sliding_window: Count | None = None
    num_windowed_layers: CountOrZero | None = None

    @model_validator(mode="after")
    def _sizes_divide(self) -> "Model":
        heads = self.num_attention_heads
        if heads % self.num_key_value_heads:
            raise InputError(
                f"num_attention_heads {heads} is not a multiple of num_key_value_heads "
                f"{self.num_key_value_heads}",
                key="num_key_value_heads",
                value=self.num_key_value_heads,
                allowed=f"a divisor of {heads}: {_divisors(heads)}",
            )
        if "head_dim" not in self.model_fields_set and self.hidden_size % heads:
            raise InputError(
                f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads {heads} "
                "and head_dim is not given",
                key="num_attention_heads",
                value=heads,
                allowed=f"a divisor of {self.hidden_size}, or head_dim given",
            )
        if self.moe and not self.num_moe_layers:
            raise InputError(
                f"num_dense_layers {self.moe.num_dense_layers} and layer_period "
                f"{self.moe.layer_period} leave none of {self.num_layers} layers to experts",
                key="moe.num_dense_layers",
                value=self.moe.num_dense_layers,
                allowed=f"an integer from 0 to {max(self.num_layers - self.moe.layer_period, 0)}",
            )
        windowed = self.num_windowed_layers
        if windowed is not None and (self.sliding_window is None or windowed > self.num_layers):
            raise InputError(
                f"num_windowed_layers {windowed} of {self.num_layers} layers with sliding_window "
                f"{self.sliding_window}",
                key="num_windowed_layers",
                value=windowed,
                allowed=f"an integer from 0 to {self.num_layers}, beside sliding_window",
            )
        return self

    @property
    def num_moe_layers(self) -> int:
        """Layers with experts among `num_layers`."""
        if self.moe is None:
            return 0
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
            return self._latent_attention_parameters(self.mla) + self.num_norm_parameters
        query, key_value = heads * self.head_dim, self.num_key_value_heads * self.head_dim
        weights = hidden * (query + 2 * key_value) + query * hidden
        biases = query + 2 * key_value + hidden if self.linear_bias else 0
        norms = self.num_norm_parameters + (2 * self.head_dim if self.qk_norm else 0)
        return weights + biases + norms

    def _latent_attention_parameters(self, mla: MLA) -> int:
        """Low-rank queries (whole ones without q_lora_rank), keys and values, and their norms."""
        hidden, heads = self.hidden_size, self.num_attention_heads
        query = heads * mla.qk_head_dim
        if mla.q_lora_rank:
            queries = hidden * mla.q_lora_rank + mla.q_lora_rank * (query + 1)
        else:
            queries = hidden * query
        latent = hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim) + mla.kv_lora_rank
        keys_values = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        return queries + latent + keys_values + heads * mla.v_head_dim * hidden

    def num_mlp_parameters(self, ffn: int) -> int:
        """Parameters of one feed-forward block of this size, without its norm."""
        up = 2 * ffn if self.gated_mlp else ffn
        biases = up + self.hidden_size if self.linear_bias else 0
        return self.hidden_size * up + ffn * self.hidden_size + biases

    @property
    def num_layer_parameters(self) -> int:
        """Parameters of one dense layer: attention, MLP, two norms."""
        mlp = self.num_mlp_parameters(self.ffn_hidden_size)
        return self.num_attention_parameters + mlp + self.num_norm_parameters

    @property
    def num_expert_parameters(self) -> int:
        """Parameters of all routed experts of one layer."""
        if self.moe is None:
            return 0
        return self.moe.num_experts * self.num_mlp_parameters(self.moe.expert_ffn_hidden_size)

    @property
    def num_moe_layer_parameters(self) -> int:
        """Parameters of one layer with experts but for those: attention, router, shared experts."""
        if self.moe is None:
            return 0
        router = self.hidden_size * self.moe.num_experts
        shared = 0
        if self.moe.num_shared_experts:
            shared = self.num_mlp_parameters(self.shared_ffn_hidden_size)
        return self.num_attention_parameters + self.num_norm_parameters + router + shared

    @property
    def shared_ffn_hidden_size(self) -> int:
        """Feed-forward size of all shared experts of a layer together."""
        moe = self.moe
        return moe.num_shared_experts * moe.expert_ffn_hidden_size if moe else 0

    @property
    def num_norm_parameters(self) -> int:
        """Parameters of one norm: a scale, and a shift in LayerNorm."""
        return self.hidden_size * (2 if self.norm == "layernorm" else 1)

    @property
    def num_embedding_parameters(self) -> int:
        """Parameters of the word and the learned position embeddings."""
        return (self.vocab_size + self.num_position_embeddings) * self.hidden_size

    @property
    def num_head_parameters(self) -> int:
        """Parameters of the LM head's own matrix; none when it is the embedding's."""
        return 0 if self.tied_embeddings else self.vocab_size * self.hidden_size

    @property
    def num_prediction_parameters(self) -> int:
        """Parameters of one multi-token prediction layer: projection, its norms, a last layer's."""
        layer = self.num_moe_layer_parameters + self.num_expert_parameters
        projection = 2 * self.hidden_size * self.hidden_size + 3 * self.num_norm_parameters
        return projection + (layer if self.moe else self.num_layer_parameters)

    @property
    def num_reserved_layers(self) -> int:
        """Layers that a pipeline's last chunk has fewer for the prediction layers it holds."""
        return LAYERS_PER_PREDICTION * self.mtp_layers

    @property
    def num_parameters(self) -> int:
        """Embedding + layers + final norm + head, without multi-token prediction layers."""
        experts = self.num_moe_layers * self.num_expert_parameters
        return experts + self._num_dense_parameters

    @property
    def num_active_parameters(self) -> int:
        """Parameters a token meets: of a layer's routed experts `top_k`, all of everything else."""
        if self.moe is None:
            return self.num_parameters
        visited = self.num_expert_parameters * self.moe.top_k // self.moe.num_experts
        return self._num_dense_parameters + self.num_moe_layers * visited

    @property
    def _num_dense_parameters(self) -> int:
        """Parameters outside routed experts."""
        dense = (self.num_layers - self.num_moe_layers) * self.num_layer_parameters
        moe = self.num_moe_layers * self.num_moe_layer_parameters
        embeddings = self.num_embedding_parameters + self.num_head_parameters
        return embeddings + dense + moe + self.num_norm_parameters


def _divisors(number: int) -> str:
    small = [candidate for candidate in range(1, min(number, 1024) + 1) if number % candidate == 0]
    return ", ".join(map(str, small))
