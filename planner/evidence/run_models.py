"""The model of a published run: its dimensions, experts and latent attention."""

import re
from functools import cache
from typing import Any

from planner.evidence.published_runs import PublishedRun, UnscorableError
from planner.inputs.values import load
from planner.problem.blocks import MLA, MoE
from planner.problem.model import Model

HYBRIDS = re.compile(r"nemotron[\s_-]*v?3[\s_-]*(nano|super|ultra)(?![a-z])")
"""Names of hybrids, of which a shipped model is called nemotron-3-… ."""


def hybrid_of(run: PublishedRun) -> Model | None:
    """Return the shipped hybrid that a row's name says: rows have no field for a layer pattern.

    Raises:
        UnscorableError: the row gives other dimensions.
    """
    named = HYBRIDS.search(run.model_name.casefold())
    if named is None:
        return None
    model = load(f"nemotron-3-{named.group(1)}", "model", Model)
    given = {"n_layers": model.num_layers, "hidden": model.hidden_size}
    if any(getattr(run, field) not in (None, size) for field, size in given.items()):
        raise UnscorableError(f"dimensions are not those of {model.name}")
    return model


def has_experts(run: PublishedRun) -> bool:
    """Return whether a row's model has experts: it says so, or is a hybrid that has."""
    return run.moe is not None or HYBRIDS.search(run.model_name.casefold()) is not None


def model_of(run: PublishedRun) -> Model:
    """Return a model of the row's dimensions, or the shipped hybrid of its name.

    Gated MLPs come with RMSNorm; the others with LayerNorm, and GPT's (by its name) with biases
    and learned positions. GPTs trained without flash attention used dropout.
    """
    hybrid = hybrid_of(run)
    if hybrid is not None:
        return hybrid
    if run.gated_mlp is None or run.tied_embeddings is None:
        raise UnscorableError("model dimensions unknown")
    dimensions = (
        run.n_layers, run.hidden, run.ffn_hidden, run.n_heads, run.n_kv_heads, run.vocab,
        run.seq_len,
    )  # fmt: skip
    if None in dimensions:
        raise UnscorableError("model dimensions unknown")
    gpt = not run.gated_mlp and "gpt" in run.model_name.casefold()
    scores_written = (run.attention or "").casefold().startswith("naive")
    try:
        return _model(
            *(size for size in dimensions if size is not None),
            run.head_dim,
            gated=run.gated_mlp,
            tied=run.tied_embeddings,
            gpt=gpt,
            dropout=gpt and scores_written,
        ).replace(**experts_of(run))
    except ValueError:  # pydantic's, around the model's own checks
        raise UnscorableError("model dimensions do not divide") from None


@cache
def _model(
    layers: int, hidden: int, ffn: int, heads: int, key_value_heads: int, vocab: int,
    sequence: int, head_dim: int | None, *, gated: bool, tied: bool, gpt: bool, dropout: bool,
) -> Model:  # fmt: skip
    if not head_dim and hidden % heads:
        raise ValueError("hidden is not a multiple of heads")
    return Model(
        name=f"{layers}x{hidden}",
        source="published run",
        num_layers=layers,
        hidden_size=hidden,
        ffn_hidden_size=ffn,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=head_dim or hidden // heads,
        vocab_size=vocab,
        gated_mlp=gated,
        tied_embeddings=tied,
        num_position_embeddings=sequence if gpt else 0,
        linear_bias=gpt,
        norm="rmsnorm" if gated else "layernorm",
        dropout=dropout,
    )


def experts_of(run: PublishedRun) -> dict[str, Any]:
    """Return what a row's `moe` adds to a model: experts, latent attention, prediction layers."""
    moe = run.moe
    if moe is None:
        return {}
    mla = moe.get("mla") or {}
    given = [moe.get(name) for name in ("n_experts", "topk", "expert_ffn")]
    latent = [mla.get(name) for name in ("kv_lora", "nope", "rope", "v")] if mla else []
    if None in (*given, *latent):
        raise UnscorableError("model dimensions unknown")
    found: dict[str, Any] = {
        "moe": MoE(
            num_experts=moe["n_experts"],
            top_k=moe["topk"],
            expert_ffn_hidden_size=moe["expert_ffn"],
            num_shared_experts=moe.get("shared") or 0,
            num_dense_layers=moe.get("dense_layers") or 0,
        ),
        "mtp_layers": moe.get("mtp_layers") or 0,
    }
    if mla:
        found["mla"] = MLA(
            q_lora_rank=mla.get("q_lora"),
            kv_lora_rank=mla["kv_lora"],
            qk_nope_head_dim=mla["nope"],
            qk_rope_head_dim=mla["rope"],
            v_head_dim=mla["v"],
        )
    window = moe.get("sliding_window_half")
    if window:
        layers = run.n_layers or 0
        found |= {"sliding_window": window, "num_windowed_layers": layers // 2}
    return found
