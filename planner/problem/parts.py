"""Experts and latent attention by their dimensions, and where matrices have biases."""

from typing import Literal

from pydantic import model_validator

from planner.errors import InputError
from planner.inputs.quantities import Count, CountOrZero
from planner.inputs.values import Strict

Biased = Literal["qkv", "attention_output", "mlp", "router", "head"]
"""Matrices that may have a bias: of queries, keys and values, of attention's output, of the
feed-forward blocks and experts, of the router, of the LM head."""

OF_LAYERS: tuple[Biased, ...] = ("qkv", "attention_output", "mlp")
"""Those that `linear_bias` gives one."""


class MoE(Strict):
    """Mixture of experts: of the layers after `num_dense_layers`, the last of every `layer_period`.

    A token visits `top_k` of `num_experts` and all of `num_shared_experts`, each a feed-forward
    block of `expert_ffn_hidden_size` (shared ones of `shared_expert_ffn_hidden_size` if given). A
    `shared_expert_gate` of one column weighs what the shared ones give. With a `latent_size` a
    projection takes tokens down to it before they travel to the routed experts, which work at that
    width, and another one up after.
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
        for key in ("shared_expert_ffn_hidden_size", "shared_expert_gate"):
            if getattr(self, key) and not self.num_shared_experts:
                raise InputError(
                    f"{key} is given, and there are no shared experts",
                    key=key,
                    value=getattr(self, key),
                    allowed=f"num_shared_experts from 1, or no {key}",
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
