"""FLOPs of a step by the conventions of MFU and HFU."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.flops import executed_flops, forward_flops_per_token, model_flops, tokens_per_step
from planner.evidence.published_runs import read_run
from planner.evidence.row_models import model_of
from planner.inputs.files import data_root
from planner.inputs.values import load
from planner.layouts.keys import RECOMPUTE
from planner.layouts.layout import Layout, LayoutTable
from planner.problem.model import Model
from tests.expert_scenarios import LATENT, shipped_context, sparse_context, sparse_model
from tests.scenarios import BACKENDS, context, model, training


def test_tokens_are_sequences_times_their_length() -> None:
    ctx = context(training=training(sequence_length=100, global_batch_size=7))
    assert tokens_per_step(ctx) == 700


def test_forward_flops_by_hand() -> None:
    """Two a weight and token; QKᵀ and PV 4·s·q, of which the causal half counts."""
    layers, attention, _, head = forward_flops_per_token(context())
    assert layers == 2 * 8 * (4 * 32**2 + 2 * 32 * 128)
    assert attention == 8 * 4 * 64 * 32 / 2
    assert head == 2 * 32 * 64


def test_gated_mlp_has_three_matrices_and_key_value_heads_are_narrow() -> None:
    toy = model(gated_mlp=True, num_key_value_heads=1, head_dim=16)
    layers, attention, *_ = forward_flops_per_token(context(model=toy))
    assert layers == 2 * 8 * (2 * 32 * 64 + 2 * 32 * 16 + 3 * 32 * 128)
    assert attention == 8 * 2 * 64 * 64


def test_packed_documents_attend_to_themselves() -> None:
    """Four documents of 16 in a sequence of 64: a quarter of the scores, the same matmuls."""
    whole, packed = context(), context(training=training(mean_document_length=16))
    layers, attention, scans, head = forward_flops_per_token(whole)
    assert forward_flops_per_token(packed) == (layers, attention / 4, scans, head)
    assert model_flops(whole) - model_flops(packed) == 3 * 64 * 8 * attention * 3 / 4
    assert executed_flops(packed, Layout()) - model_flops(packed) == pytest.approx(
        0.5 * 64 * 8 * attention / 4
    )


def test_unfused_attention_masks_documents_and_skips_none() -> None:
    whole, packed = (
        context(training=training(attention="naive", mean_document_length=length))
        for length in (None, 16)
    )
    assert executed_flops(packed, Layout()) == executed_flops(whole, Layout())


def test_embedding_lookup_is_no_matmul_but_a_tied_head_is() -> None:
    tied, untied = (
        model_flops(context(model=model(tied_embeddings=tied))) for tied in (True, False)
    )
    assert tied == untied


def test_six_flops_a_parameter_and_token() -> None:
    """With short sequences and a small vocabulary attention and embedding vanish beside 6·N·T."""
    toy = model(hidden_size=1024, ffn_hidden_size=4096, num_attention_heads=16)
    ctx = context(model=toy, training=training(sequence_length=8))
    assert model_flops(ctx) == pytest.approx(6 * toy.num_parameters * 64, rel=0.01)


def test_attention_grows_with_the_square_of_the_sequence() -> None:
    short, long = (
        context(training=training(sequence_length=s, global_batch_size=1)) for s in (64, 128)
    )
    per_token = [forward_flops_per_token(ctx)[1] for ctx in (short, long)]
    assert per_token[1] == 2 * per_token[0]
    growth = model_flops(long) - 2 * model_flops(short)
    # 12·L·s²·q over a step's forward and backward, halved by the mask
    assert growth == 3 * (8 * 2 * 32) * (128**2 - 2 * 64**2)


# ---------------------------------------------------------------- published rows


@cache
def published() -> list[dict[str, Any]]:
    path = data_root() / "scenarios" / "published" / "measured_runs.jsonl"
    rows = map(json.loads, path.read_text("utf-8").splitlines())
    return [row for row in rows if row["std"].get("flops_per_token_causal")]


def test_published_flops_per_token() -> None:
    """Sources' figures, brought to one convention: causal, with the LM head, nothing recomputed."""
    seen = {}
    for row in published():
        run = read_run(json.dumps(row), "measured_runs.jsonl", 1)
        if row["n_layers"] is None or run.gated_mlp is None or run.tied_embeddings is None:
            continue
        ctx = context(model=model_of(run), training=training(sequence_length=row["seq_len"]))
        found = 3 * sum(forward_flops_per_token(ctx))
        assert found == pytest.approx(row["std"]["flops_per_token_causal"], rel=0.01), row["id"]
        seen[row["model_name"].casefold()] = found
    assert len(seen) >= 30
    assert {"llama3_8b", "llama3.1_405b", "gpt3-175b", "llama2-70b", "mpt-7b"} <= set(seen)
    assert {"deepseekv3", "qwen3_235b_a22b", "qwen3_30b_a3b", "kimi k2", "gpt-oss 120b"} <= set(
        seen
    )


def test_deepseek_v3_by_hand() -> None:
    """Two FLOPs a token and weight of the matrices it meets (arXiv 2412.19437, section 4.2).

    61 layers and a prediction layer, three of them dense, nine experts of the others; the head
    twice, with it the matmul that joins a prediction layer's inputs; scores of 128 heads of 192 and
    values of 128, the causal half.
    """
    h, heads = 7168, 128
    attention = h * 1536 + 1536 * heads * 192 + h * 576 + 512 * heads * 256 + heads * 128 * h
    dense = attention + 3 * h * 18432
    sparse = attention + 9 * 3 * h * 2048 + h * 256
    layers, cores, _, head = forward_flops_per_token(shipped_context("deepseek-v3"))
    assert layers == pytest.approx(2 * (3 * dense + 59 * sparse), rel=1e-12)
    assert cores == pytest.approx(62 * 4096 * heads * (192 + 128), rel=1e-12)
    assert head == 2 * (2 * h * 129280 + 2 * h * h)
    # all but embeddings, norms and the prediction layer: twice the active parameters
    main = layers + 2 * h * 129280 - 2 * sparse
    model_ = load("deepseek-v3", "model", Model)
    active = model_.num_active_parameters - model_.num_embedding_parameters
    assert main == pytest.approx(2 * active, rel=1e-4)


def test_windows_cut_attention_alone() -> None:
    """Half of the layers see 16 of 64 tokens: 64·16 − 16²/2 scores of 64²/2."""
    whole = forward_flops_per_token(context())
    some = forward_flops_per_token(context(model=model(sliding_window=16, num_windowed_layers=4)))
    assert (some[0], some[2]) == (whole[0], whole[2])
    assert some[1] == pytest.approx(whole[1] * (1 + (64 * 16 - 128) / 2048) / 2)


@pytest.mark.parametrize("recompute", ["moe", "mla_up_proj", "act", "act_norm", "full"])
def test_recomputed_modules_by_hand(recompute: str) -> None:
    """Of a layer: two experts of 2·32·64, up-projections of 24·4·12 and 16·4·14, or all of it."""
    ctx = sparse_context(toy=sparse_model(mla=LATENT))
    again = {
        "moe": 2 * 2 * 32 * 64, "mla_up_proj": 24 * 4 * 12 + 16 * 4 * (8 + 6), "act": 0,
        "act_norm": 0,
    }  # fmt: skip
    none, more = (float(executed_flops(ctx, Layout(recompute=k))) for k in ("none", recompute))
    layers, attention, *_ = forward_flops_per_token(ctx)
    expected = layers + attention if recompute == "full" else 2 * 8 * again[recompute]
    assert more - none == pytest.approx(8 * 64 * expected, rel=1e-9, abs=1e-6 * none)


# ---------------------------------------------------------------- executed


@pytest.mark.parametrize(
    ("attention", "recompute", "cores", "layers"),
    [
        # flash repeats QKᵀ backwards: 1 + 2.5 forward passes of the causal half
        ("flash", "none", 3.5, 3.0),
        ("flash", "selective", 4.5, 3.0),
        ("flash", "full", 4.5, 4.0),
        ("flash", "alternate", 4.0, 3.5),
        # scores written out: both halves, forward once and backward twice
        ("naive", "none", 2 * 3.0, 3.0),
        ("naive", "selective", 2 * 4.0, 3.0),
        ("naive", "full", 2 * 4.0, 4.0),
    ],
)
def test_executed_flops_by_hand(
    attention: str, recompute: str, cores: float, layers: float
) -> None:
    ctx = context(training=training(attention=attention))
    per_layers, per_cores, _, head = forward_flops_per_token(ctx)
    expected = 8 * 64 * (layers * per_layers + cores * per_cores + 3 * head)
    assert executed_flops(ctx, Layout(recompute=recompute)) == pytest.approx(expected, rel=1e-15)


def test_operators_recompute_no_attention() -> None:
    """torchtitan's per-operator checkpointing keeps the attention output, half of the matmuls'."""
    none, operators, full = (
        float(executed_flops(context(), Layout(recompute=kind)))
        for kind in ("none", "operators", "full")
    )
    layers, attention, *_ = forward_flops_per_token(context())
    assert operators - none == pytest.approx(8 * 64 * layers / 2)
    assert full - none == pytest.approx(8 * 64 * (layers + attention))


@given(
    st.sampled_from(BACKENDS),
    st.integers(1, 10_000),
    st.integers(1, 8),
    st.integers(1, 10_000),
)
def test_executed_is_never_below_the_model_s(
    attention: str, sequence: int, layers: int, vocab: int
) -> None:
    ctx = context(
        model=model(num_layers=layers, vocab_size=vocab),
        training=training(attention=attention, sequence_length=sequence),
    )
    table = LayoutTable.from_layouts([Layout(recompute=kind) for kind in RECOMPUTE])
    found = executed_flops(ctx, table)
    assert (found >= model_flops(ctx)).all()
    for flops, kind in zip(found, RECOMPUTE, strict=True):
        assert flops == pytest.approx(executed_flops(ctx, Layout(recompute=kind)), rel=1e-12)
