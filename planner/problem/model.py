"""Transformer language models by their dimensions."""

from typing import Any, Literal

from pydantic import Field, model_validator

from planner.errors import InputError, UnsupportedError
from planner.files import Strict
from planner.problem.quantities import Count, CountOrZero, Layers, Positive


class MoE(Strict):
    """Mixture of experts in the layers after the first `num_dense_layers`."""

    num_experts: Count
    top_k: Count
    expert_ffn_hidden_size: Count
    num_shared_experts: CountOrZero = 0
    num_dense_layers: CountOrZero = 0

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


def _default_head_dim(data: dict[str, Any]) -> int:
    return max(1, int(data["hidden_size"]) // int(data["num_attention_heads"]))


class Model(Strict):
    """A decoder-only transformer; sizes in elements, counts as integers."""

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
    published_parameters: Positive | None = None
    moe: MoE | None = None
    mla: MLA | None = None
    mtp_layers: CountOrZero = 0
    sliding_window: Count | None = None

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
        if self.moe and self.moe.num_dense_layers > self.num_layers:
            raise InputError(
                f"num_dense_layers {self.moe.num_dense_layers} exceeds num_layers "
                f"{self.num_layers}",
                key="moe.num_dense_layers",
                value=self.moe.num_dense_layers,
                allowed=f"an integer from 0 to {self.num_layers}",
            )
        return self

    @property
    def num_layer_parameters(self) -> int:
        """Parameters of one dense layer: attention, MLP, two norms."""
        hidden, ffn = self.hidden_size, self.ffn_hidden_size
        query = self.num_attention_heads * self.head_dim
        key_value = self.num_key_value_heads * self.head_dim
        up = 2 * ffn if self.gated_mlp else ffn
        weights = hidden * (query + 2 * key_value) + query * hidden + hidden * up + ffn * hidden
        biases = query + 2 * key_value + hidden + up + hidden if self.linear_bias else 0
        return weights + biases + 2 * self.num_norm_parameters

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
    def num_parameters(self) -> int:
        """Embedding + layers + final norm + head, of a dense model.

        Raises:
            UnsupportedError: the model has experts, latent attention or extra prediction layers.
        """
        require_costed(self)
        layers = self.num_layers * self.num_layer_parameters
        embeddings = self.num_embedding_parameters + self.num_head_parameters
        return embeddings + layers + self.num_norm_parameters


def _divisors(number: int) -> str:
    small = [candidate for candidate in range(1, min(number, 1024) + 1) if number % candidate == 0]
    return ", ".join(map(str, small))


def require_costed(model: Model) -> None:
    """Raise UnsupportedError for parts of a model whose cost is not modelled yet."""
    parts = {
        "moe (mixture of experts)": model.moe is not None,
        "mla (multi-head latent attention)": model.mla is not None,
        "mtp_layers (multi-token prediction)": model.mtp_layers > 0,
        "sliding_window (windowed attention)": model.sliding_window is not None,
    }
    present = [part for part, given in parts.items() if given]
    if present:
        raise UnsupportedError(
            f"model {model.name}: the cost of {' and '.join(present)} is not modelled yet; "
            "dense models with full attention are"
        )
