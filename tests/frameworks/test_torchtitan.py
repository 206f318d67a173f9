"""Exports to torchtitan against its own parsers and device meshes, and what it cannot express."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import replace

import pytest

from planner.errors import ExportError
from planner.frameworks.target import target
from planner.frameworks.torchtitan.write import modules, torchtitan_settings
from planner.layouts.layout import Layout
from planner.layouts.rank_orders import framework_groups
from planner.planning.export import export_plan, launch_job
from tests.parsers.harness import ask, bash_words
from tests.parsers.plans import plan_of, random_plans, scenario

CHOICES = (
    ("llama3-8b", 32, 64, "bf16"),
    ("deepseek-v3", 64, 128, "bf16"),
    ("qwen3-30b-a3b", 24, 96, "bf16"),
    ("llama3-70b", 48, 96, "bf16"),
    ("llama3-405b", 64, 64, "fp8-rowwise"),
    ("llama3-8b", 16, 64, "mxfp8"),
)
COUNT = 210
AXES = ("tp", "cp", "dp_shard", "dp_replicate", "pp")
LAYOUT = Layout(tp=2, pp=2, dp_shard=4, dp_replicate=2, vp=2, mbs=2, num_microbatches=4,
                zero_stage=3, sp=True, overlap="dp+pp", cp_kind="all_gather")  # fmt: skip


def plan(model="llama3-8b", precision="bf16", **changes):
    given = scenario(model, 32, 64, precision, "torchtitan")
    return plan_of(given, replace(LAYOUT, **changes), AXES)


def words(found):
    return bash_words(export_plan(found, "torchtitan")["torchtitan-args.sh"], "TORCHTITAN_ARGS")


def test_flags_of_a_plan():
    found = words(plan())
    assert found[:4] == ["--module", "llama3", "--config", "llama3_8b"]
    flags = {w: found[i + 1] for i, w in enumerate(found[:-1]) if w.startswith("--")}
    expected = {
        "--parallelism.tensor_parallel_degree": "2",
        "--parallelism.pipeline_parallel_degree": "2",
        "--parallelism.data_parallel_shard_degree": "4",
        "--parallelism.data_parallel_replicate_degree": "2",
        "--parallelism.pipeline_parallel_schedule": "Interleaved1F1B",
        "--parallelism.pipeline_parallel_microbatch_size": "2",
        "--training.local_batch_size": "8",  # all micro-batches of the step
        "--training.global_batch_size": "64", "--training.seq_len": "2048",
        "--parallelism.fsdp_reshard_after_forward": "default",
    }  # fmt: skip
    assert {flag: flags[flag] for flag in expected} == expected
    assert "--training.disable_cuda_graphs" in found and found[-1] == "activation-checkpoint:none"


def test_modules_are_split_as_the_plan_s_layers():
    parts = modules([3, 4, 4, 3], "lm_head")
    assert parts[0] == ["tok_embeddings", "layers.0", "layers.1", "layers.2"]
    assert parts[-1] == ["layers.11", "layers.12", "layers.13", "norm", "lm_head"]
    assert sum(name.startswith("layers.") for part in parts for name in part) == 14


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"recompute": "selective"}, "recompute selective is not expressible"),
        ({"recompute": "alternate"}, "expressible: none, operators, full"),
        ({"zero_stage": 1}, "zero_stage 1 is not expressible in torchtitan 0.3.0"),
        ({"cp": 2, "dp_shard": 2, "cp_kind": "ring"}, "cp_kind ring"),
        ({"overlap": "pp"}, "always overlaps sharded data parallelism"),
        ({"overlap": "dp"}, "always overlaps pipeline sends"),
        ({"stage_layers": (17, 15)}, "virtual stages"),
        ({"etp": 2}, "etp 2 is not expressible"),
    ],
)
def test_what_it_cannot_express_is_said(changes, reason):
    with pytest.raises(ExportError, match=reason):
        export_plan(plan(**changes), "torchtitan")


def test_all_reasons_are_said_at_once():
    with pytest.raises(ExportError) as refused:
        export_plan(plan(recompute="selective", zero_stage=1, overlap="none"), "torchtitan")
    assert len(refused.value.reasons) == 4


def test_other_precisions_need_a_model_of_its_registry():
    with pytest.raises(ExportError, match="no llama3-8b in precision fp8"):
        export_plan(plan(precision="fp8"), "torchtitan")


def test_a_model_it_does_not_ship_is_left_to_the_user_and_said():
    text = export_plan(plan(model="llama2-7b"), "torchtitan")["torchtitan-args.sh"]
    assert "NOT SET: --module and --config" in text and "--module llama3" not in text


def test_plans_of_other_software_are_refused():
    given = scenario("llama3-8b", 32, 64, "bf16", "megatron-core")
    with pytest.raises(ExportError, match="scored for software megatron-core"):
        export_plan(plan_of(given, LAYOUT, AXES), "torchtitan")


def test_other_orders_are_refused():
    swapped = replace(plan(), rank_order=(("pp", 2), ("tp", 2), ("dp_shard", 8)))
    with pytest.raises(ExportError, match="cannot place ranks in the order pp-tp"):
        export_plan(swapped, "torchtitan")
    assert "TORCHTITAN_ARGS=(" in export_plan(swapped, "slurm")["job.sbatch"]


def test_the_toml_reads_back():
    found = tomllib.loads(export_plan(plan(precision="fp8"), "torchtitan-toml")["torchtitan.toml"])
    assert found["model"] == {
        "name": "llama3", "flavor": "8B", "converters": ["quantize.linear.float8"],
    }  # fmt: skip
    assert found["training"]["local_batch_size"] == 8
    assert found["parallelism"]["module_fqns_per_model_part"][-1][-1] == "output"
    assert found["quantize"]["linear"]["float8"]["recipe_name"] == "tensorwise"


# ---------------------------------------------------------------- real parsers


def expressible(name, count, seed):
    found, refused = [], Counter()
    for drawn in random_plans(CHOICES, "torchtitan", 3 * count, seed, False, name):
        if len(found) == count:
            break
        try:
            found.append((drawn, export_plan(drawn, name)))
        except ExportError as error:
            refused.update(reason.partition(";")[0][:50] for reason in error.reasons)
    assert len(found) == count, refused
    return found


@pytest.fixture(scope="module")
def answered():
    jobs = []
    for drawn, files in expressible("torchtitan", COUNT, 6):
        n = launch_job(drawn).scenario.num_accelerators
        argv = bash_words(files["torchtitan-args.sh"], "TORCHTITAN_ARGS")
        jobs.append((drawn, {"argv": argv, "world_size": n, "ranks": [0, n - 1, 7 * n // 11]}))
    answers = ask("torchtitan_driver.py", "torchtitan", [job for _, job in jobs])
    return [(drawn, job, answer) for (drawn, job), answer in zip(jobs, answers, strict=True)]


@pytest.mark.parsers
def test_legal_plans_are_accepted_and_read_back(answered):
    errors = Counter(answer.get("error", "")[:200] for *_, answer in answered)
    assert errors == {"": len(answered)} and len(answered) >= 200
    policies = {"none": None, "operators": "SelectiveAC.Config", "full": "FullAC.Config"}
    for drawn, _, answer in answered:
        job, to = launch_job(drawn), target("torchtitan")
        assert answer["recompute"] == policies[job.layout.recompute]
        for name, value in torchtitan_settings(job, to).items():
            if name not in ("--module", "--config", "activation-checkpoint"):
                assert answer["values"][name.removeprefix("--")] == value, name
        stages = answer["values"]["parallelism.module_fqns_per_model_part"]
        if job.layout.pp > 1:
            assert len(stages) == job.layout.pp * job.layout.vp
        micro = answer["values"]["training.local_batch_size"] * job.layout.dp
        steps = answer["values"]["training.global_batch_size"] / micro
        assert steps == (1 if job.layout.pp > 1 else job.layout.num_microbatches)


@pytest.mark.parsers
def test_meshes_are_those_of_the_rank_table(answered):
    for drawn, job, answer in answered:
        layout = drawn.layout
        ours = framework_groups(layout, AXES)
        for rank in job["ranks"]:
            for group, members in answer["groups"][str(rank)].items():
                row = next(row for row in ours[group].tolist() if rank in row)
                assert sorted(row) == members, (layout, rank, group)


@pytest.mark.parsers
def test_the_older_version_reads_the_toml():
    """Tier 2: nothing but its parser is run."""
    found = expressible("torchtitan-toml", 60, 7)
    jobs = [{"toml": files["torchtitan.toml"]} for _, files in found]
    answers = ask("torchtitan_driver.py", "torchtitan-0.2.2", jobs)
    for (drawn, _), answer in zip(found, answers, strict=True):
        assert "error" not in answer, answer
        settings = torchtitan_settings(launch_job(drawn), target("torchtitan-toml"))
        for name, value in settings.items():
            if name in answer["values"]:
                expected = [value] if name == "model.converters" else value
                assert answer["values"][name] == expected, name
