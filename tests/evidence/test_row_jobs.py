"""Rows as scenarios and layouts, and the named reasons why not."""

from collections.abc import Callable
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cost.context import attention_of
from planner.evidence.published_runs import (
    PUBLISHED_RUNS,
    PublishedRun,
    UnscorableError,
    read_runs,
)
from planner.evidence.row_jobs import accelerator_of, fill_of, job_of, software_of

MakeRun = Callable[..., PublishedRun]

EXPERTS = {"n_experts": 8, "topk": 2, "expert_ffn": 1024}


def test_every_field_arrives(make_run: MakeRun) -> None:
    job = job_of(make_run())
    scenario, layout = job.scenario, job.layout
    model = scenario.model
    assert (model.num_layers, model.hidden_size, model.ffn_hidden_size) == (32, 4096, 14336)
    assert (model.num_attention_heads, model.num_key_value_heads, model.head_dim) == (32, 8, 128)
    assert (model.norm, model.linear_bias, model.dropout) == ("rmsnorm", False, False)
    assert (model.vocab_size, model.tied_embeddings) == (128256, False)
    assert scenario.topology.accelerator.name == "h100-sxm-80gb"
    assert scenario.num_accelerators == 16
    assert (scenario.training.sequence_length, scenario.training.global_batch_size) == (8192, 64)
    assert (scenario.training.precision, scenario.training.attention) == ("bf16", "flash")
    assert (layout.tp, layout.cp, layout.pp, layout.vp) == (2, 1, 2, 2)
    assert (layout.dp_shard, layout.dp_replicate, layout.zero_stage) == (4, 1, 1)
    assert (layout.mbs, layout.num_microbatches, layout.sp) == (1, 16, True)
    assert layout.recompute == "none"
    assert not job.assumed_network
    assert prod(job.fill) == 16


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"moe": EXPERTS, "ep": None}, "ep unknown"),
        ({"moe": EXPERTS, "ep": 16}, "etp·ep does not divide tp·cp·dp"),
        ({"moe": EXPERTS, "ep": 4, "etp": 4}, "etp·ep does not divide tp·cp·dp"),
        ({"moe": EXPERTS | {"topk": 9}}, "model dimensions do not divide"),
        ({"task": "lora"}, "task 'lora' may freeze parameters, which is not costed"),
        ({"task": "sft"}, "task 'sft' may freeze parameters, which is not costed"),
        ({"n_layers": None}, "model dimensions unknown"),
        ({"n_kv_heads": None}, "model dimensions unknown"),
        ({"gated_mlp": None}, "model dimensions unknown"),
        ({"n_kv_heads": 5}, "model dimensions do not divide"),
        ({"n_heads": 48}, "model dimensions do not divide"),
        ({"gpu": "Z9000", "gpu_family": None}, "accelerator 'Z9000' not shipped"),
        ({"gpu": None}, "gpu unknown"),
        ({"n_gpus": None}, "n_gpus unknown"),
        ({"dtype": "fp32"}, "dtype 'fp32' not costed"),
        ({"dtype": None}, "dtype unknown"),
        ({"dtype": "nvfp4"}, "no fp4 matmul figures for h100-sxm-80gb"),
        ({"attention": "linear"}, "attention 'linear' not costed"),
        ({"attention": None}, "attention unknown"),
        ({"recompute": None}, "recompute unknown"),
        ({"recompute": "every other"}, "recompute 'every other' not costed"),
        ({"tp": 4}, "tp·cp·pp·dp differs from n_gpus"),
        ({"tp": None}, "tp unknown"),
        ({"mbs": None}, "mbs unknown"),
        ({"vp": None}, "vp unknown"),
        ({"sp": None}, "sp unknown"),
        ({"zero_stage": None}, "zero_stage unknown"),
        ({"gbs": None}, "gbs unknown"),
        ({"gbs": 62, "grad_accum": None}, "gbs is not a multiple of dp·mbs"),
        ({"gbs": 128}, "gbs differs from dp·mbs·grad_accum"),
        ({"overlap": {"zero1_group_size": 3}}, "shard group does not divide dp"),
        (
            {"overlap": {"activation_offload": True}},
            "offload of some modules' activations not costed",
        ),
        (
            {"overlap": {"preset_facts": {"cpu_offloading_num_layers": 13}}},  # a stage has 16
            "offload of some layers' activations not costed",
        ),
        (
            {
                "overlap": {"cpu_offloading_num_layers": 15},
                "gpu": "V100-SXM2-16GB",
                "dtype": "fp16",
                "attention": "naive",
            },
            "no host figures for v100-sxm2-16gb",
        ),
        (
            {"recompute": "custom (offload decoder_layer_input, q, k, v projections; MaxText)"},
            "recompute 'custom (offload decoder_layer_input, q, k, v projections; MaxText)'"
            " not costed",
        ),
    ],
)
def test_reasons(make_run: MakeRun, changes: dict[str, object], reason: str) -> None:
    with pytest.raises(UnscorableError) as caught:
        job_of(make_run(**changes))
    assert caught.value.reason == reason


@pytest.mark.parametrize("framework", ["Homemade 1.0", None])
def test_a_framework_without_a_profile_takes_the_fallback(
    make_run: MakeRun, framework: str | None
) -> None:
    job = job_of(make_run(framework=framework))
    assert job.assumed_software and job.scenario.software.name == "fallback"
    assert job.layout.overlap == "dp+pp"  # as in software/fallback.yaml
    assert not job_of(make_run()).assumed_software


def test_a_row_may_count_the_recomputed_layers(make_run: MakeRun) -> None:
    layout = job_of(make_run(recompute="full, block method, 5 layer(s) per stage")).layout
    assert (layout.recompute, layout.recompute_layers) == ("full", 5)
    assert job_of(make_run(recompute="full")).layout.recompute_layers == 0


def test_what_does_not_matter_may_be_unknown(make_run: MakeRun) -> None:
    layout = job_of(make_run(tp=1, sp=None, pp=1, vp=None, dp=16, grad_accum=None)).layout
    assert (layout.sp, layout.vp, layout.num_microbatches) == (False, 1, 4)


@pytest.mark.parametrize("gpu", ["H100-80G-SXM", "h100 sxm 80gb", "H100_80G_SXM"])
def test_accelerator_names_ignore_case_and_punctuation(make_run: MakeRun, gpu: str) -> None:
    assert accelerator_of(make_run(gpu=gpu, gpu_family=None)).name == "h100-sxm-80gb"


def test_the_family_serves_where_the_accelerator_is_unknown(make_run: MakeRun) -> None:
    run = make_run(gpu="H100-80G-SXM-custom", gpu_family="H100-80G")
    assert accelerator_of(run).name == "h100-sxm-80gb"


@pytest.mark.parametrize(
    ("label", "mfu", "hfu", "recompute"),
    [
        ("selective(core_attn)", 0.55, 0.74, "full"),  # 4/3, whatever its label says
        ("selective(core_attn)", 0.61, 0.69, "selective"),
        ("selective(core_attn)", 0.55, None, "selective"),
        ("none", 0.55, 0.74, "none"),  # HFU on another convention: the label is plain
    ],
)
def test_printed_hfu_says_whether_whole_layers_were_recomputed(
    make_run: MakeRun, label: str, mfu: float, hfu: float | None, recompute: str
) -> None:
    run = make_run(recompute=label, printed={"mfu": mfu, "hfu": hfu})
    assert job_of(run).layout.recompute == recompute


@pytest.mark.parametrize(
    ("attention", "gpu", "backend"),
    [
        ("flash(TE/cuDNN fused)", "H100-80G-SXM", "flash"),
        ("flash", "A100-80G-SXM", "flash-v1"),
        ("flash(SDPA)", "A100-80G-SXM", "flash-v2"),
        ("flash-v1", "A100-80G-SXM", "flash-v1"),
        ("naive(torch)", "A100-80G-SXM", "naive"),
        ("naive(fused softmax)", "A100-80G-SXM", "fused-softmax"),
    ],
)
def test_attention(make_run: MakeRun, attention: str, gpu: str, backend: str) -> None:
    job = job_of(make_run(attention=attention, gpu=gpu))
    assert job.scenario.training.attention == backend


DEFAULTS = {
    "flash(SDPA)", "flash(TE)", "flash(TE/cuDNN fused)", "flash(cuDNN)", "naive(fused softmax)",
}  # fmt: skip
"""`attention` of rows that ran what their framework does unless told otherwise."""

SWEPT = "AA-Scaling"
"""In the framework of rows that compare kernels."""


def test_rows_ran_the_kernels_that_their_software_runs_by_default() -> None:
    compared = set()
    for run in read_runs(PUBLISHED_RUNS):
        if run.attention not in DEFAULTS or SWEPT in str(run.framework):
            continue
        try:
            scenario = job_of(run).scenario
        except UnscorableError:
            continue
        training = scenario.training.replace(attention="auto")
        assert attention_of(scenario.replace(training=training)) == scenario.training.attention
        compared.add((scenario.software.name, scenario.topology.accelerator.name))
    profiles = {name for name, _ in compared}
    assert {"torchtitan", "fsdp-composer", "nemo", "megatron-core"} <= profiles
    assert {"megatron-2021", "oneflow"} <= profiles


def test_gpt_has_biases_positions_and_dropout_without_flash(make_run: MakeRun) -> None:
    gpt = {"model_name": "GPT-22B", "gated_mlp": False, "gpu": "A100-80G-SXM"}
    model = job_of(make_run(**gpt, attention="naive(fused softmax)")).scenario.model
    assert model.norm == "layernorm"
    assert (model.linear_bias, model.dropout, model.num_position_embeddings) == (True, True, 8192)
    assert not job_of(make_run(**gpt, attention="flash-v2")).scenario.model.dropout
    other = job_of(make_run(model_name="Nemotron4-15B", gated_mlp=False)).scenario.model
    assert (other.norm, other.linear_bias, other.num_position_embeddings) == ("layernorm", False, 0)


def test_network_of_the_row_or_the_usual_one(make_run: MakeRun) -> None:
    usual = job_of(make_run(nic_gbps_per_gpu=None))
    assert usual.assumed_network
    slow = job_of(make_run(nic_gbps_per_gpu=100)).scenario.topology
    rates = [t.bytes_per_second for t in slow.tiers if t.fabric.kind == "network"]
    assert rates and set(rates) == {12.5e9}
    inside = job_of(make_run(nic_gbps_per_gpu=None, n_gpus=8, dp=2, gbs=32))
    assert not inside.assumed_network


def test_scale_up_domain_of_the_row(make_run: MakeRun) -> None:
    job = job_of(make_run(gpus_per_nvlink_domain=4))
    assert job.scenario.topology.widths[0] == 4
    assert job.fill[:2] == (4, 4)


def test_the_outermost_tier_is_widened(make_run: MakeRun) -> None:
    count = 2**20
    job = job_of(make_run(n_gpus=count, dp=count // 4, gbs=count, grad_accum=4))
    assert job.scenario.topology.num_accelerators >= count


@pytest.mark.parametrize(
    ("widths", "count", "fill"),
    [
        ((8, 32, 16), 16, (8, 2, 1)),
        ((8, 32, 16), 4, (4, 1, 1)),
        ((72, 8, 16), 256, (64, 4, 1)),
        ((72, 8, 16), 144, (72, 2, 1)),
        ((8, 20, 16), 280, (8, 20, 16)),  # 35 nodes share no even filling of leaves of 20
    ],
)
def test_fill_by_hand(widths: tuple[int, ...], count: int, fill: tuple[int, ...]) -> None:
    assert fill_of(widths, count) == fill


@given(st.lists(st.integers(1, 80), min_size=1, max_size=4), st.integers(1, 5000))
def test_fill_is_exact_or_the_full_widths(widths: list[int], count: int) -> None:
    fill = fill_of(tuple(widths), count)
    assert prod(fill) == count or fill == tuple(widths)
    assert all(used <= width for used, width in zip(fill, widths, strict=True))


@pytest.mark.parametrize(
    ("changes", "shard", "replicate"),
    [
        ({"overlap": {"zero1_group_size": 2}}, 2, 2),
        ({"overlap": {"zero1_group_size": 64}}, 4, 1),
        ({"overlap": {"zero1_group_size": "all dp"}}, 4, 1),
        ({"zero_stage": 0}, 4, 1),
        (
            {"zero_stage": 3, "overlap": {"sharding": "HSDP"}, "tp": 1, "pp": 1, "vp": 1, "dp": 16},
            8,
            2,
        ),
        ({"zero_stage": 3, "overlap": {"sharding": "FSDP"}}, 4, 1),
    ],
)
def test_shard_groups(
    make_run: MakeRun, changes: dict[str, object], shard: int, replicate: int
) -> None:
    layout = job_of(make_run(grad_accum=None, **changes)).layout
    assert (layout.dp_shard, layout.dp_replicate) == (shard, replicate)


def test_flags_override_the_software(make_run: MakeRun) -> None:
    flags = {"tp": False, "grad_reduce": False, "p2p": False}
    assert job_of(make_run(overlap=flags)).layout.overlap == "none"
    flags = {"tp_comm_overlap(userbuffers)": True, "grad_sync": True, "p2p": True}
    assert job_of(make_run(overlap=flags)).layout.overlap == "tp+dp+pp"
    usual = job_of(make_run())
    able = set(usual.scenario.software.overlap) - {"ep"}  # a dense model has no experts
    assert set(usual.layout.overlap.split("+")) - {"none"} == able
    assert job_of(make_run(overlap={"cp_comm_type": "a2a"})).layout.cp_kind == "a2a"


@pytest.mark.parametrize(("flag", "axis"), [("pp", "pp"), ("zero1", "dp")])
def test_flags_named_after_the_layout(make_run: MakeRun, flag: str, axis: str) -> None:
    """Other overlaps stay the software's."""
    usual = set(job_of(make_run()).layout.overlap.split("+"))
    for value, expected in ((True, usual | {axis}), (False, usual - {axis})):
        layout = job_of(make_run(overlap={flag: value})).layout
        assert set(layout.overlap.split("+")) == expected


@pytest.mark.parametrize(
    ("layers", "offload"),
    [(None, "none"), (0, "none"), (14, "activations"), (15, "activations")],
)
def test_activations_of_all_but_two_layers_of_a_stage_may_be_offloaded(
    make_run: MakeRun, layers: int | None, offload: str
) -> None:
    run = make_run(overlap={"preset_facts": {"cpu_offloading_num_layers": layers}})
    assert job_of(run).layout.offload == offload


@pytest.mark.parametrize(
    ("changes", "tied"),
    [({}, False), ({"model_name": "GPT-22B", "gated_mlp": False}, True)],
)
def test_unknown_embeddings_are_tied_in_a_gpt(
    make_run: MakeRun, changes: dict[str, object], tied: bool
) -> None:
    assert job_of(make_run(tied_embeddings=None, **changes)).scenario.model.tied_embeddings is tied


@pytest.mark.parametrize(
    ("written", "recompute"),
    [
        ("selective(core_attn)", "selective"),
        ("selective(op)", "operators"),
        ("selective layer", "alternate"),
        ("full (uniform)", "full"),
    ],
)
def test_recompute(make_run: MakeRun, written: str, recompute: str) -> None:
    assert job_of(make_run(recompute=written)).layout.recompute == recompute


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        ("fp8-hybrid(delayed scaling)", "fp8"),
        ("fp8-tensorwise", "fp8"),
        ("fp8-rowwise", "fp8-rowwise"),
        ("BF16", "bf16"),
    ],
)
def test_precision(make_run: MakeRun, dtype: str, precision: str) -> None:
    assert job_of(make_run(dtype=dtype)).scenario.training.precision == precision


@pytest.mark.parametrize(
    ("notes", "eager"),
    [
        ("trial 1; fused RMSNorm kernel off; gradients", True),
        ("trial 2; fused RMSNorm kernel on; gradients", False),
        ("nothing of norms", False),
        (None, False),
    ],
)
def test_norm_kernels(make_run: MakeRun, notes: str | None, eager: bool) -> None:
    assert software_of(make_run(notes=notes)).eager_norm is eager


@pytest.mark.parametrize(
    ("overlap", "gradients", "states", "primary"),
    [
        (None, 4, None, False),
        ({"grad_reduce_in_bf16": True}, 2, None, False),
        ({"preset_facts": {"grad_reduce_in_bf16": True, "optimizer_bytes": 8}}, 2, 8, False),
        ({"grad_reduce_in_bf16": False, "fp8_param_gather": True}, 4, None, True),
    ],
)
def test_bytes_of_states(
    make_run: MakeRun,
    overlap: dict[str, object] | None,
    gradients: float,
    states: float | None,
    primary: bool,
) -> None:
    """As a row gives them, itself or through its preset; else as its profile, megatron-core."""
    software = software_of(make_run(framework="Megatron-LM", overlap=overlap))
    assert (software.gradient_bytes, software.optimizer_bytes) == (gradients, states)
    assert ("fp8" in software.low_precision_parameters) is primary


@pytest.mark.parametrize(
    ("framework", "overlap", "profile"),
    [
        ("torchtitan (FSDP2)", {"torch_compile": False}, "torchtitan-eager"),
        ("torchtitan (FSDP2)", {"torch_compile": True}, "torchtitan"),
        ("torchtitan (FSDP2)", None, "torchtitan"),
        ("Megatron-LM", {"torch_compile": False}, "megatron-core"),  # it has its own kernels
    ],
)
def test_rows_that_were_not_compiled(
    make_run: MakeRun, framework: str, overlap: dict[str, bool] | None, profile: str
) -> None:
    run = make_run(framework=framework, overlap=overlap)
    assert software_of(run).name == profile
