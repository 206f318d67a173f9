"""The Megatron arguments: safe for the shell, equal to the plan, refused where not expressible."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from planner.errors import ExportError, UnknownNameError
from planner.frameworks.megatron.stages import layout_text
from planner.frameworks.write import EXPORTS
from planner.inputs.values import load
from planner.planning.export import export_plan
from planner.problem.software import Software
from tests.report.fabricated import LAYOUT, fabricated_plan

NAME = "megatron-args.sh"


def with_layout(**changes):
    return replace(fabricated_plan(), layout=replace(LAYOUT, **changes))


def with_inputs(part, **changes):
    plan = fabricated_plan()
    return replace(plan, inputs={**plan.inputs, part: {**plan.inputs[part], **changes}})


def sourced(plan, folder):
    """The words of the array as bash sees them."""
    path = folder / NAME
    path.write_text(export_plan(plan, "megatron")[NAME], encoding="utf-8")
    subprocess.run(["bash", "-n", str(path)], check=True)
    script = 'source "$1"; printf "%s\\0" "${MEGATRON_ARGS[@]}"'
    done = subprocess.run(
        ["bash", "-eu", "-c", script, "-", str(path)], check=True, capture_output=True, text=True
    )
    assert done.stderr == ""
    return done.stdout.split("\0")[:-1]


def flags(plan, folder):
    """Flag to value (None for a switch)."""
    found = {}
    for word in sourced(plan, folder):
        if word.startswith("--"):
            found[word] = None
        else:
            last = list(found)[-1]
            assert found[last] is None
            found[last] = word
    return found


def test_every_flag_of_the_plan_reads_back(tmp_path):
    found = flags(fabricated_plan(), tmp_path)
    expected = {
        "--num-layers": "126", "--hidden-size": "16384", "--ffn-hidden-size": "53248",
        "--num-attention-heads": "128", "--group-query-attention": None,
        "--num-query-groups": "8", "--seq-length": "8192", "--max-position-embeddings": "8192",
        "--micro-batch-size": "1", "--global-batch-size": "2048", "--bf16": None,
        "--swiglu": None, "--normalization": "RMSNorm", "--disable-bias-linear": None,
        "--untie-embeddings-and-output-weights": None, "--position-embedding-type": "rope",
        "--tensor-model-parallel-size": "8", "--pipeline-model-parallel-size": "16",
        "--context-parallel-size": "1", "--sequence-parallel": None, "--tp-comm-overlap": None,
        "--use-distributed-optimizer": None, "--overlap-grad-reduce": None,
        "--overlap-param-gather": None,
        "--pipeline-model-parallel-layout": "Et*3|(t*4|)*30t*3L",
    }  # fmt: skip
    assert {flag: found.get(flag, "absent") for flag in expected} == expected
    for absent in ("--use-tp-pp-dp-mapping", "--cp-comm-type", "--recompute-granularity"):
        assert absent not in found


def test_one_flag_per_line_and_the_stamp():
    text = export_plan(fabricated_plan(), "megatron", ["why it is not the plan given"])[NAME]
    assert "# why it is not the plan given\n" in text
    inside = [line.strip() for line in text.split("=(\n")[1].splitlines()[:-1]]
    assert all(line.startswith(("--", "# ")) for line in inside)
    assert "megatron-core 0.19.2" in text
    assert f"inputs_sha256: {fabricated_plan().inputs_sha256}" in text


def test_even_virtual_stages_use_the_count_of_layers(tmp_path):
    plan = replace(with_inputs("model", num_layers=128), layout=LAYOUT)
    found = flags(plan, tmp_path)
    assert found["--num-layers-per-virtual-pipeline-stage"] == "4"
    assert "--pipeline-model-parallel-layout" not in found


def test_even_plain_pipeline_needs_no_split_flag(tmp_path):
    plan = replace(with_inputs("model", num_layers=128), layout=replace(LAYOUT, vp=1))
    assert not [f for f in flags(plan, tmp_path) if "stage" in f or f.endswith("-layout")]


def test_own_stage_split(tmp_path):
    split = (6, *[8] * 15)
    found = flags(with_layout(vp=1, stage_layers=split), tmp_path)
    assert found["--pipeline-model-parallel-layout"] == "Et*6|(t*8|)*14t*8L"
    with pytest.raises(ExportError, match="virtual stages"):
        export_plan(with_layout(vp=2, stage_layers=(7, 9, *[8] * 13, 6)), "megatron")


@pytest.mark.parametrize("chunks", [[3, 4, 4, 4, 3], [1, 1], [2, 1, 1, 1, 1, 2, 3, 3], [5, 5, 4]])
def test_layout_text_unrolls_to_the_chunks(chunks):
    text = layout_text(chunks)
    # as megatron/core/transformer/pipeline_parallel_layer_layout.py does
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        text = re.sub(pattern, lambda found: found.group(1) * int(found.group(2)), text)
    stages = text.split("|")
    assert stages[0][0] == "E" and stages[-1][-1] == "L"
    assert [stage.count("t") for stage in stages] == chunks


def test_tp_pp_dp_order_sets_the_mapping_flag(tmp_path):
    order = (("tp", 8), ("pp", 16), ("dp_shard", 128))
    assert "--use-tp-pp-dp-mapping" in flags(replace(fabricated_plan(), rank_order=order), tmp_path)


def test_order_in_pieces_that_adjoin_is_the_same_order(tmp_path):
    order = (("tp", 8), ("dp_shard", 32), ("cp", 1), ("dp_shard", 4), ("pp", 16))
    found = flags(replace(fabricated_plan(), rank_order=order), tmp_path)
    assert "--use-tp-pp-dp-mapping" not in found


@pytest.mark.parametrize(
    "order",
    [
        (("dp_shard", 128), ("tp", 8), ("pp", 16)),
        (("tp", 8), ("dp_shard", 4), ("pp", 16), ("dp_shard", 32)),
        (("pp", 16), ("tp", 8), ("dp_shard", 128)),
    ],
)
def test_custom_orders_are_refused_with_what_is_expressible(order):
    with pytest.raises(ExportError, match="expressible: tp-cp-dp") as refused:
        export_plan(replace(fabricated_plan(), rank_order=order), "megatron")
    assert refused.value.exit_code == 1


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_other_zero_stages_are_refused(zero_stage):
    with pytest.raises(
        ExportError,
        match=r"zero_stage . is not expressible in megatron-core .*; expressible: 0, 1",
    ):
        export_plan(with_layout(zero_stage=zero_stage), "megatron")


def test_plain_data_parallelism(tmp_path):
    found = flags(with_layout(zero_stage=0), tmp_path)
    assert "--use-distributed-optimizer" not in found
    assert "--overlap-param-gather" not in found
    assert "--overlap-grad-reduce" in found


def test_shard_groups(tmp_path):
    plan = replace(
        with_layout(dp_shard=32, dp_replicate=4),
        rank_order=(("tp", 8), ("dp_shard", 32), ("dp_replicate", 4), ("pp", 16)),
    )
    assert flags(plan, tmp_path)["--num-distributed-optimizer-instances"] == "4"


@pytest.mark.parametrize(("kind", "flag"), [("ring", "p2p"), ("all_gather", "all_gather")])
def test_context_parallelism(kind, flag, tmp_path):
    plan = replace(
        with_layout(cp=2, dp_shard=64, cp_kind=kind),
        rank_order=(("tp", 8), ("cp", 2), ("dp_shard", 64), ("pp", 16)),
    )
    found = flags(plan, tmp_path)
    assert (found["--context-parallel-size"], found["--cp-comm-type"]) == ("2", flag)


def test_hierarchical_context_parallelism_names_both_sizes():
    plan = replace(
        with_layout(cp=8, dp_shard=16, cp_kind="hierarchical", cp_a2a=4),
        rank_order=(("tp", 8), ("cp", 8), ("dp_shard", 16), ("pp", 16)),
    )
    text = export_plan(plan, "megatron")[NAME]
    assert "--cp-comm-type a2a+p2p" in text
    assert re.search(r"--hierarchical-context-parallel-sizes 4 2\n", text)


def test_offloading_names_its_flags():
    text = export_plan(with_layout(offload="optimizer+activations"), "megatron")[NAME]
    assert "--optimizer-cpu-offload" in text and "--use-precision-aware-optimizer" in text
    assert "--fine-grained-activation-offloading" in text
    assert "expert_fc1" not in text
    assert "offload" not in export_plan(fabricated_plan(), "megatron")[NAME]


def test_scaling_per_row_is_refused():
    with pytest.raises(ExportError, match="precision fp8-rowwise is not expressible"):
        export_plan(with_inputs("training", precision="fp8-rowwise"), "megatron")


@pytest.mark.parametrize(
    "changes",
    [
        {"num_layers": 2, "layer_pattern": "*-"},
        {"moe": {"num_experts": 8, "top_k": 2, "expert_ffn_hidden_size": 64, "latent_size": 32}},
    ],
)
def test_patterns_and_latent_experts_are_refused(changes):
    with pytest.raises(ExportError, match="models without layer_pattern"):
        export_plan(with_inputs("model", **changes), "megatron")


def test_packed_documents_are_refused():
    with pytest.raises(ExportError, match="without mean_document_length"):
        export_plan(with_inputs("training", mean_document_length=512), "megatron")


def test_recompute(tmp_path):
    found = flags(with_layout(recompute="full"), tmp_path)
    assert found["--recompute-granularity"] == "full"
    assert (found["--recompute-method"], found["--recompute-num-layers"]) == ("uniform", "1")
    found = flags(with_layout(recompute="full", recompute_layers=3), tmp_path)
    assert (found["--recompute-method"], found["--recompute-num-layers"]) == ("block", "3")
    found = flags(with_layout(recompute="selective"), tmp_path)
    assert found["--recompute-granularity"] == "selective"
    assert "--recompute-method" not in found  # Megatron refuses the two together
    for kind in ("operators", "alternate"):
        with pytest.raises(ExportError, match="expressible: none, selective,"):
            export_plan(with_layout(recompute=kind), "megatron")


def test_overlaps(tmp_path):
    found = flags(with_layout(overlap="none"), tmp_path)
    assert "--no-overlap-p2p-communication" in found
    for absent in ("--tp-comm-overlap", "--overlap-grad-reduce", "--overlap-param-gather"):
        assert absent not in found
    with pytest.raises(ExportError, match="sequence parallelism"):
        export_plan(with_layout(sp=False), "megatron")


@pytest.mark.parametrize(
    ("precision", "flag", "value"),
    [
        ("fp16", "--fp16", None), ("fp8", "--fp8-format", "hybrid"),
        ("mxfp8", "--fp8-recipe", "mxfp8"), ("fp8-blockwise", "--fp8-recipe", "blockwise"),
        ("bf16", "--bf16", None),
    ],
)  # fmt: skip
def test_precisions(precision, flag, value, tmp_path):
    assert flags(with_inputs("training", precision=precision), tmp_path)[flag] == value


def test_states_in_fewer_bytes_than_megatron_s_defaults(tmp_path):
    usual = flags(fabricated_plan(), tmp_path)
    assert not {"--grad-reduce-in-bf16", "--fp8-param-gather"} & set(usual)
    plan = with_inputs("training", precision="fp8")
    nemo = load("nemo", "software", Software).model_dump(mode="json", by_alias=True)
    found = flags(replace(plan, inputs={**plan.inputs, "software": nemo}), tmp_path)
    assert found["--grad-reduce-in-bf16"] is None
    assert found["--fp8-param-gather"] is None


def test_a_model_with_biases_and_learned_positions(tmp_path):
    plan = with_inputs(
        "model", linear_bias=True, norm="layernorm", gated_mlp=False, tied_embeddings=True,
        num_position_embeddings=8192, dropout=True,
    )  # fmt: skip
    found = flags(plan, tmp_path)
    for absent in ("--swiglu", "--disable-bias-linear", "--untie-embeddings-and-output-weights"):
        assert absent not in found
    assert found["--position-embedding-type"] == "learned_absolute"
    assert found["--normalization"] == "LayerNorm"
    assert found["--hidden-dropout"] == "0.1"


@pytest.mark.parametrize(
    "name", ["it's $(touch pwned)", "two\nlines; touch pwned", "`touch pwned`"]
)
def test_names_stay_comments(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sourced(with_inputs("model", name=name), tmp_path) == sourced(
        fabricated_plan(), tmp_path
    )
    assert not (tmp_path / "pwned").exists()


def test_no_layout_no_export():
    with pytest.raises(ExportError, match="no layout"):
        export_plan(replace(fabricated_plan(), layout=None, status="infeasible"), "megatron")


def test_unknown_target_has_a_near_match():
    with pytest.raises(UnknownNameError, match="did you mean 'megatron'"):
        export_plan(fabricated_plan(), "megatorn")
    assert "megatron" in EXPORTS


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_is_content(tmp_path):
    path = tmp_path / NAME
    path.write_text(export_plan(fabricated_plan(), "megatron")[NAME])
    subprocess.run(["shellcheck", "-S", "warning", str(path)], check=True)


def test_nothing_is_written_by_export_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    export_plan(fabricated_plan(), "megatron")
    assert list(Path().iterdir()) == []


def test_schedules_megatron_does_not_have_are_refused():
    plan = with_layout(schedule="zb-h1", vp=1)
    with pytest.raises(
        ExportError,
        match="no pipeline schedule zb-h1; expressible: 1f1b",
    ):
        export_plan(plan, "megatron")
