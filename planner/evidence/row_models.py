"""The model of a published row: its dimensions, experts, latent attention, and its family."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from planner.evidence.published_runs import PublishedRun, UnscorableError
from planner.evidence.row_keys import FAMILIES, GPT_OSS, GPT_OSS_FIELDS, HYBRIDS
from planner.inputs.values import load
from planner.problem.blocks import MLA, MoE
from planner.problem.hardware import folded
from planner.problem.model import Model

_UNKNOWN = "model dimensions unknown"


def model_of(run: PublishedRun) -> Model:
    """The shipped hybrid of the row's name, else a model of the row's dimensions.

    Raises:
        UnscorableError: a dimension is unknown, or dimensions do not fit each other.
    """
    hybrid = hybrid_of(run)
    if hybrid is not None:
        return hybrid
    try:
        return _dense_model(_Dimensions.of(run)).replace(**experts_of(run))
    except ValueError:  # pydantic's, around the model's own checks
        raise UnscorableError("model dimensions do not divide") from None


def hybrid_of(run: PublishedRun) -> Model | None:
    """The shipped hybrid that the row's name says: rows have no key for a layer pattern.

    Raises:
        UnscorableError: the row gives other dimensions.
    """
    named = HYBRIDS.search(run.model_name.casefold())
    if named is None:
        return None
    model = load(f"nemotron-3-{named.group(1)}", "model", Model)
    given = {"n_layers": model.num_layers, "hidden": model.hidden_size}
    if any(getattr(run, key) not in (None, size) for key, size in given.items()):
        raise UnscorableError(f"dimensions are not those of {model.name}")
    return model


def has_experts(run: PublishedRun) -> bool:
    """Whether the row's model has experts: it says so, or is a hybrid, all of which have."""
    return run.moe is not None or HYBRIDS.search(run.model_name.casefold()) is not None


def family_of(run: PublishedRun) -> str:
    """The first of FAMILIES that is in the model's name, else the name itself."""
    name = folded(run.model_name)
    return next((family for family in FAMILIES if folded(family) in name), run.model_name)


@dataclass(frozen=True, slots=True)
class _Dimensions:
    """What a row says of a dense model, and the two things that follow from its name.

    gpt: linear layers have biases, positions are learned.
    dropout: GPTs trained without flash attention used it.
    """

    num_layers: int
    hidden_size: int
    ffn_hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    sequence_length: int
    head_dim: int | None
    gated_mlp: bool
    tied_embeddings: bool
    gpt: bool
    dropout: bool

    @classmethod
    def of(cls, run: PublishedRun) -> _Dimensions:
        """The row's.

        Raises:
            UnscorableError: one is unknown.
        """
        if run.gated_mlp is None:
            raise UnscorableError(_UNKNOWN)
        gpt = not run.gated_mlp and "gpt" in run.model_name.casefold()
        keeps_scores = (run.attention or "").casefold().startswith("naive")
        return cls(
            num_layers=_known(run.n_layers),
            hidden_size=_known(run.hidden),
            ffn_hidden_size=_known(run.ffn_hidden),
            num_attention_heads=_known(run.n_heads),
            num_key_value_heads=_known(run.n_kv_heads),
            vocab_size=_known(run.vocab),
            sequence_length=_known(run.seq_len),
            head_dim=run.head_dim,
            gated_mlp=run.gated_mlp,
            # GPT-2 and GPT-3 tie, as Megatron does by default; later large models do not
            tied_embeddings=gpt if run.tied_embeddings is None else run.tied_embeddings,
            gpt=gpt,
            dropout=gpt and keeps_scores,
        )


def _known(size: int | None) -> int:
    if size is None:
        raise UnscorableError(_UNKNOWN)
    return size


@cache
def _dense_model(dimensions: _Dimensions) -> Model:
    """The model without experts. Gated MLPs come with RMSNorm, others with LayerNorm.

    Cached: hundreds of rows share a few models, and a model checks itself when it is made.
    """
    d = dimensions
    if not d.head_dim and d.hidden_size % d.num_attention_heads:
        raise ValueError("hidden is not a multiple of heads")
    return Model(
        name=f"{d.num_layers}x{d.hidden_size}",
        source="published run",
        num_layers=d.num_layers,
        hidden_size=d.hidden_size,
        ffn_hidden_size=d.ffn_hidden_size,
        num_attention_heads=d.num_attention_heads,
        num_key_value_heads=d.num_key_value_heads,
        head_dim=d.head_dim or d.hidden_size // d.num_attention_heads,
        vocab_size=d.vocab_size,
        gated_mlp=d.gated_mlp,
        tied_embeddings=d.tied_embeddings,
        num_position_embeddings=d.sequence_length if d.gpt else 0,
        linear_bias=d.gpt,
        norm="rmsnorm" if d.gated_mlp else "layernorm",
        dropout=d.dropout,
    )


def experts_of(run: PublishedRun) -> dict[str, Any]:
    """The fields of a model that a row's `moe` adds: experts, latent attention, MTP, windows.

    Raises:
        UnscorableError: a dimension is unknown.
    """
    # nested keys are not typed by `PublishedRun`: their values are checked by MoE and MLA
    moe = run.moe
    if moe is None:
        return {}
    mla = moe.get("mla") or {}
    needed = [moe.get(key) for key in ("n_experts", "topk", "expert_ffn")]
    needed += [mla.get(key) for key in ("kv_lora", "nope", "rope", "v")] if mla else []
    if None in needed:
        raise UnscorableError(_UNKNOWN)
    fields: dict[str, Any] = {
        "moe": MoE(
            num_experts=moe["n_experts"],
            top_k=moe["topk"],
            expert_ffn_hidden_size=moe["expert_ffn"],
            num_shared_experts=moe.get("shared") or 0,
            num_dense_layers=moe.get("dense_layers") or 0,
        ),
        "mtp_layers": moe.get("mtp_layers") or 0,
    }
    if GPT_OSS.search(run.model_name.casefold()):
        fields |= GPT_OSS_FIELDS
    if mla:
        fields["mla"] = MLA(
            q_lora_rank=mla.get("q_lora"),
            kv_lora_rank=mla["kv_lora"],
            qk_nope_head_dim=mla["nope"],
            qk_rope_head_dim=mla["rope"],
            v_head_dim=mla["v"],
        )
    window = moe.get("sliding_window_half")
    if window:
        fields["sliding_window"] = window
        fields["num_windowed_layers"] = (run.n_layers or 0) // 2
    return fields
