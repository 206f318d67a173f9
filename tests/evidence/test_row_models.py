"""Models of published rows: dimensions, experts, latent attention, as the rows say them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from planner.evidence.published_runs import PublishedRun, UnscorableError
from planner.evidence.row_jobs import job_of
from planner.evidence.row_models import (
    experts_of,
    family_of,
    has_experts,
    hybrid_of,
    model_of,
)
from planner.inputs.values import load
from planner.problem.blocks import MLA, MoE
from planner.problem.model import Model

MakeRun = Callable[..., PublishedRun]

EXPERTS = {"n_experts": 8, "topk": 2, "expert_ffn": 1024}
LATENT = {"q_lora": 1536, "kv_lora": 512, "nope": 128, "rope": 64, "v": 128}
DEEPSEEK = {
    "n_layers": 61, "hidden": 7168, "ffn_hidden": 18432, "n_heads": 128, "n_kv_heads": 128,
    "head_dim": 192, "vocab": 129280,
    "moe": {
        "n_experts": 256, "topk": 8, "shared": 1, "expert_ffn": 2048, "dense_layers": 3,
        "mla": LATENT, "mtp_layers": 1, "routing": "force-balanced, dropless",
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("LLaMA-13B(128k vocab)", "llama"),
        ("LLAMA3.1_405B", "llama"),
        ("Mixtral-8x22B", "mixtral"),
        ("Qwen3_30B_a3B (tokendrop)", "qwen"),
        ("DeepSeek V3 671B", "deepseek"),
        ("Grok1-314B proxy 4L", "grok"),
        ("GPT OSS 120B", "gpt-oss"),
        ("GPT3-175B", "gpt"),
        ("Nemotron V3 Super 120B", "nemotron"),
        ("Nemotron4-340B", "nemotron"),
        ("Hy3-295B-A21B", "Hy3-295B-A21B"),  # none that is known: its own name
    ],
)
def test_families_are_in_names(make_run: MakeRun, name: str, family: str) -> None:
    assert family_of(make_run(model_name=name)) == family


def test_a_dense_row_adds_nothing(make_run: MakeRun) -> None:
    assert experts_of(make_run()) == {}
    assert model_of(make_run()).moe is None


def test_experts_by_hand(make_run: MakeRun) -> None:
    few = experts_of(make_run(moe=EXPERTS))
    assert few == {
        "moe": MoE(num_experts=8, top_k=2, expert_ffn_hidden_size=1024),
        "mtp_layers": 0,
    }
    more = EXPERTS | {"shared": 2, "dense_layers": 3, "mtp_layers": 1, "mla": LATENT}
    found = experts_of(make_run(moe=more))
    assert found == {
        "moe": MoE(
            num_experts=8, top_k=2, expert_ffn_hidden_size=1024, num_shared_experts=2,
            num_dense_layers=3,
        ),
        "mtp_layers": 1,
        "mla": MLA(
            q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
            v_head_dim=128,
        ),
    }  # fmt: skip
    plain = experts_of(make_run(moe=EXPERTS | {"mla": LATENT | {"q_lora": None}}))
    assert plain["mla"].q_lora_rank is None


def test_every_second_layer_may_be_windowed(make_run: MakeRun) -> None:
    found = experts_of(make_run(moe=EXPERTS | {"sliding_window_half": 128}))
    assert (found["sliding_window"], found["num_windowed_layers"]) == (128, 16)


@pytest.mark.parametrize(
    ("name", "is_gpt_oss"),
    [
        ("GPT OSS 120B", True),
        ("gpt-oss-20b", True),
        ("GPTOSS_120B", True),
        ("GPT3-175B", False),
        ("Qwen3_30B_a3B", False),
    ],
)
def test_gpt_oss_has_biases_sinks_and_clamps(
    make_run: MakeRun, name: str, is_gpt_oss: bool
) -> None:
    """Its model card (arXiv 2508.10925): rows have no keys for them."""
    found = model_of(make_run(model_name=name, moe=EXPERTS))
    places = ("qkv", "attention_output", "mlp", "router")
    assert {found.has_bias(place) for place in places} == {is_gpt_oss}
    assert found.attention_sinks is is_gpt_oss
    assert found.clamped_activation is is_gpt_oss


def test_deepseek_v3_of_a_row_is_the_shipped_one(make_run: MakeRun) -> None:
    shipped = load("deepseek-v3", "model", Model)
    names = {"name", "source", "published_parameters", "published_active_parameters"}
    found = model_of(make_run(**DEEPSEEK))
    differing = {
        name for name in Model.model_fields if getattr(found, name) != getattr(shipped, name)
    }
    assert differing <= names
    assert found.num_parameters == shipped.num_parameters


@pytest.mark.parametrize(
    ("said", "variation"),
    [
        ("force-balanced, dropless", 0.0),
        ("fake balanced gate", 0.0),
        ("tokendrop", 0.0),
        ("Token drop, capacity 1.0 (per recipe)", 0.0),
        ("padded to capacity factor 1 (launcher flags)", 0.0),
        ("real routing, dropless", None),
        ("dropless", None),
        (None, None),
    ],
)
def test_routing(make_run: MakeRun, said: str | None, variation: float | None) -> None:
    """Forced balance, dropping or padding leave no rank more rows; real routers do."""
    moe = EXPERTS | ({} if said is None else {"routing": said})
    training = job_of(make_run(moe=moe)).scenario.training
    usual = type(training).model_fields["expert_load_variation"].default
    assert usual > 0
    assert training.expert_load_variation == (usual if variation is None else variation)


@pytest.mark.parametrize("said", ["tokendrop, capacity factor 1.25", "padded to capacity 2"])
def test_experts_padded_to_more_than_an_even_share_are_not_costed(
    make_run: MakeRun, said: str
) -> None:
    with pytest.raises(UnscorableError, match="capacity"):
        job_of(make_run(moe=EXPERTS | {"routing": said}))


@pytest.mark.parametrize(
    ("flags", "ep", "dispatcher"),
    [
        ({"dispatcher": "deepep"}, 4, "flex"),
        ({"dispatcher": "a2a"}, 4, "alltoall"),
        ({"preset_facts": {"moe_flex_dispatcher_backend": "hybridep"}}, 4, "flex"),
        ({"preset_facts": {"moe_token_dispatcher_type": "flex"}}, 4, "flex"),
        # the row's own word counts before its preset's
        (
            {"dispatcher": "a2a", "preset_facts": {"moe_token_dispatcher_type": "flex"}},
            4,
            "alltoall",
        ),
        ({"dispatcher": "deepep"}, 1, "alltoall"),
        (None, 4, "alltoall"),
    ],
)
def test_dispatcher(make_run: MakeRun, flags: Any, ep: int, dispatcher: str) -> None:
    layout = job_of(make_run(moe=EXPERTS, ep=ep, overlap=flags)).layout
    assert layout.dispatcher == dispatcher
    assert (layout.ep, layout.etp) == (ep, 1)


@pytest.mark.parametrize(
    ("framework", "ep", "etp", "expected"),
    [
        ("Megatron-LM", 4, None, 2),
        ("NeMo/Megatron-Core", 2, None, 2),
        ("Megatron-LM", 8, None, 1),  # tp·cp·dp is 8: no rank is left to shard an expert over
        ("Megatron-LM", 4, 1, 1),
        ("torchtitan (FSDP2)", 4, None, 1),
        # without a profile of their own
        ("SomeLab (Megatron fork)", 4, None, 2),
        ("SomeLab Megatron-DeepSpeed", 4, None, 1),
        ("SomeLab", 4, None, 1),
    ],
)
def test_experts_are_sharded_over_tp_where_megatron_is_told_nothing(
    make_run: MakeRun, framework: str, ep: int, etp: int | None, expected: int
) -> None:
    layout = job_of(make_run(moe=EXPERTS, framework=framework, ep=ep, etp=etp)).layout
    assert (layout.tp, layout.ep, layout.etp) == (2, ep, expected)


def test_a_dense_model_has_no_experts_to_shard(make_run: MakeRun) -> None:
    assert job_of(make_run(etp=None)).layout.etp == 1


@pytest.mark.parametrize(
    ("facts", "graphs"),
    [
        ({"cuda_graph_impl": "transformer_engine"}, "partial"),
        ({"cuda_graph_impl": "full_iteration"}, "full"),
        ({"helpers": ["_enable_deepseek_full_iteration_mxfp8"]}, "full"),
        ({"cuda_graph_impl": "local"}, "partial"),
        ({"cuda_graph_impl": "local", "cuda_graph_scope": ["moe_router"]}, "partial"),
        ({"cuda_graph_impl": "local", "cuda_graph_scope": "full_iteration"}, "full"),
        # a scope alone switches no graphs on
        ({"cuda_graph_impl": "none", "cuda_graph_scope": "full_iteration"}, "none"),
        ({"helpers": ["_other"]}, "none"),
        ({}, "none"),
    ],
)
def test_graphs(make_run: MakeRun, facts: dict[str, Any], graphs: str) -> None:
    run = make_run(moe=EXPERTS, ep=4, overlap={"preset_facts": facts})
    assert job_of(run).scenario.training.cuda_graphs == graphs


def test_dispatch_and_combine_overlap_where_a_row_says_so(make_run: MakeRun) -> None:
    plain = job_of(make_run(moe=EXPERTS, ep=4)).layout
    beside = job_of(make_run(moe=EXPERTS, ep=4, overlap={"moe_a2a_overlap": True})).layout
    assert (plain.overlap_ep, beside.overlap_ep) == (0, 1)
    assert plain.overlap_dp == beside.overlap_dp
    assert not job_of(make_run(overlap={"moe_a2a_overlap": True})).layout.overlap_ep


@pytest.mark.parametrize(
    ("written", "recompute"),
    [
        ("selective(mla_up_proj)", "mla_up_proj"),
        ("selective(moe_act)", "act"),
        ("selective(act+norm)", "act_norm"),
        ("selective(layernorm+moe_act)", "act_norm"),
        ("selective(layernorm+moe)", "moe"),
        ("selective(mlp)", "none"),
    ],
)
def test_recomputed_modules(make_run: MakeRun, written: str, recompute: str) -> None:
    moe = EXPERTS | {"mla": LATENT}
    assert job_of(make_run(moe=moe, recompute=written)).layout.recompute == recompute


# ---------------------------------------------------------------- hybrids

UNSAID = dict.fromkeys(
    ("n_layers", "hidden", "ffn_hidden", "n_heads", "n_kv_heads", "vocab", "gated_mlp",
     "tied_embeddings")
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("Nemotron V3 Nano 30B", "nemotron-3-nano"),
        ("Nemotron 3 Super", "nemotron-3-super"),
        ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", "nemotron-3-ultra"),
        ("Nemotron_3_Nano_30B", "nemotron-3-nano"),
    ],
)
def test_a_hybrid_is_the_shipped_model_of_its_name(
    name: str, model: str, make_run: MakeRun
) -> None:
    """No field of a row says a pattern; what it says must agree."""
    shipped = load(model, "model", Model)
    run = make_run(model_name=name, **UNSAID)
    assert model_of(run) == shipped and has_experts(run)
    agrees = {"n_layers": shipped.num_layers, "hidden": shipped.hidden_size}
    assert model_of(make_run(model_name=name, **UNSAID | agrees)) == shipped
    with pytest.raises(UnscorableError, match="dimensions are not those of nemotron-3"):
        model_of(make_run(model_name=name, **UNSAID | agrees | {"hidden": 1024}))


@pytest.mark.parametrize(
    "name", ["Nemotron4-15B", "Nemotron-340B", "Nemotron 30 Nano", "Nemotron 3 Nanotron", ""]
)
def test_other_names_are_read_by_their_dimensions(name: str, make_run: MakeRun) -> None:
    run = make_run(model_name=name)
    assert hybrid_of(run) is None and not has_experts(run)
    assert model_of(run).layer_pattern is None


def test_a_hybrid_row_is_costed_with_its_experts(make_run: MakeRun) -> None:
    """Its dispatch and combine, evenly routed unless it says otherwise; no virtual stages."""
    said = {
        "model_name": "Nemotron V3 Nano 30B", "moe": None, "n_gpus": 8, "tp": 1, "pp": 1, "cp": 1,
        "vp": 1, "dp": 8, "ep": 8, "gbs": 64, "mbs": 1, "grad_accum": None, "sp": False,
        "overlap": {"dispatcher": "DeepEP"},
    } | UNSAID  # fmt: skip
    job = job_of(make_run(**said))
    assert (job.layout.ep, job.layout.dispatcher) == (8, "flex")
    assert job.scenario.training.expert_load_variation == 0.0
    staged = said | {"pp": 2, "vp": 2, "dp": 4, "ep": 4, "grad_accum": None}
    with pytest.raises(UnscorableError, match="virtual stages of a layer pattern"):
        job_of(make_run(**staged))
