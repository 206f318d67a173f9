"""Scripts as users write them: what is understood, what is judged, what is left aside."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

import planner
from planner.advise.script import judged
from planner.errors import InputError, UnknownNameError
from planner.frameworks.read import read_launch_script

FOLDER = Path(__file__).parent.parent / "data" / "launch"


def scenario(name="llama3-8b-h100x8", **changes):
    return planner.load_scenario(name, {key: str(value) for key, value in changes.items()})


EIGHT = {"topology": "dgx-h100", "training.global_batch_size": 128}

SCRIPTS = {
    # file → target, scenario, accelerators judged, layout, training, verdict
    "llama3-70b-slurm.sh": (
        "megatron", ("llama3-70b-h100x1024", {}), 1024,
        {"tp": 8, "pp": 4, "vp": 5, "dp": 32, "mbs": 1, "num_microbatches": 32, "sp": True,
         "zero_stage": 1, "overlap": "tp+dp+pp", "recompute": "none"},
        (1024, 8192, "bf16"), "fits",
    ),
    "gpt3-string-args.sh": (
        "megatron", ("gpt3-175b-a100x1024", {}), 1024,
        {"tp": 8, "pp": 16, "vp": 1, "dp": 8, "recompute": "selective", "overlap": "pp",
         "zero_stage": 1},
        (1536, 2048, "fp16"), "fits",
    ),
    "mixtral-8x7b.sh": (
        "megatron", ("mixtral-8x7b-h100x64", {}), 64,
        {"tp": 1, "pp": 4, "vp": 1, "ep": 8, "etp": 1, "sp": False, "dispatcher": "alltoall"},
        (256, 4096, "bf16"), None,
    ),
    "container.sbatch": (
        "megatron", ("llama3-8b-h100x8", {**EIGHT, "num_accelerators": 64}), 64,
        {"tp": 4, "pp": 2, "dp": 8, "mbs": 2, "num_microbatches": 8}, (128, 8192, "bf16"), "fits",
    ),
    "args.txt": (
        "megatron", ("llama3-8b-h100x8", {"num_accelerators": 8}), 8,
        {"tp": 2, "pp": 2, "dp": 2, "recompute": "full", "sp": True, "overlap": "pp"},
        (32, 8192, "bf16"), "fits",
    ),
    "uneven.sh": (
        "megatron", ("llama3-8b-h100x8", {**EIGHT, "num_accelerators": 16}), 16,
        {"tp": 2, "pp": 4, "dp": 2, "vp": 1}, (32, 8192, "bf16"), "fits",
    ),
    "fsdp.sh": (
        "megatron", ("llama3-8b-h100x8", {**EIGHT, "num_accelerators": 32}), 32,
        {"zero_stage": 3, "dp": 32, "overlap": "tp+dp+pp", "recompute": "selective"},
        (32, 8192, "bf16"), None,
    ),
    "torchtitan-run.sh": (
        "torchtitan", ("llama3-8b-torchtitan-h100x64", {"num_accelerators": 8}), 8,
        {"tp": 2, "dp_shard": 4, "dp_replicate": 1, "mbs": 1, "sp": True, "zero_stage": 3,
         "recompute": "operators"},
        (4, 8192, "bf16"), "fits",
    ),
    "llama3_8b.toml": (
        "torchtitan-toml", ("llama3-8b-torchtitan-h100x64", {}), 64,
        {"tp": 1, "dp_shard": 64, "mbs": 1, "zero_stage": 3, "recompute": "operators"},
        (64, 8192, "bf16"), "fits",
    ),
    "ds_config.json": (
        "deepspeed", ("llama3-8b-h100x8", {**EIGHT, "num_accelerators": 32,
                                           "software": "deepspeed"}), 32,
        {"tp": 1, "pp": 1, "dp": 32, "mbs": 2, "num_microbatches": 4, "zero_stage": 3,
         "overlap": "dp"},
        (256, 8192, "bf16"), None,
    ),
    "accelerate_fsdp.yaml": (
        "accelerate", ("llama3-8b-torchtitan-h100x64", {"num_accelerators": 16}), 16,
        {"dp_shard": 16, "zero_stage": 3, "recompute": "full", "mbs": 1}, None, "fits",
    ),
    "deepseek-v3.sh": (
        "megatron", ("deepseek-v3-h800x2048", {}), 2048,
        {"tp": 1, "pp": 16, "vp": 1, "ep": 64, "etp": 1, "dp": 128, "dispatcher": "flex",
         "recompute": "mla_up_proj"},
        (15360, 4096, "fp8-blockwise"), None,
    ),
}  # fmt: skip


def read(name):
    return (FOLDER / name).read_text("utf-8")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_understood(name, no_search):
    kind, (base, changes), count, layout, training, verdict = SCRIPTS[name]
    found = planner.check(read(name), scenario(base, **changes), name)
    assert found.rules == (), [str(error) for error in found.rules]
    assert (found.target, found.num_accelerators) == (kind, count)
    assert {key: found.layout.to_document()[key] for key in layout} == layout
    assert verdict is None or found.verdict == verdict
    assert found.plan.step_seconds > 0 and found.plan.groups
    if training is not None:
        judged = found.plan.inputs["training"]
        keys = ("global_batch_size", "sequence_length", "precision")
        assert tuple(judged[key] for key in keys) == training
    lines = read(name).splitlines()
    for said in found.understood:  # each setting stands on the line it is said to stand on
        first = said.setting.split()[0].removeprefix("--").rpartition(".")[2].partition("=")[0]
        if said.line is not None and name != "container.sbatch" and len(said.setting.split()) == 1:
            window = "\n".join(lines[max(said.line - 4, 0) : said.line + 14])
            assert first.replace("_", "-") in window.replace("_", "-"), said
    assert len(SCRIPTS) >= 12


def test_the_scenario_s_model_is_contradicted_only_where_it_differs(no_search):
    found = planner.check(read("llama3-70b-slurm.sh"), scenario("llama3-70b-h100x1024"))
    assert found.contradictions == ()
    thinner = read("llama3-70b-slurm.sh").replace("--num-layers 80", "--num-layers 64")
    found = planner.check(thinner, scenario("llama3-70b-h100x1024"))
    (said,) = found.contradictions
    assert (said.key, said.script, said.scenario) == ("model.num_layers", 64, 80)
    assert said.line == thinner.splitlines().index("    --num-layers 64") + 1
    assert found.plan.inputs["model"]["num_layers"] == 64


def test_batch_sequence_and_precision_of_the_script_are_judged_and_told(no_search):
    given = scenario("llama3-8b-h100x8", **EIGHT, num_accelerators=64,
                     **{"training.sequence_length": 4096, "training.precision": "fp8"})  # fmt: skip
    found = planner.check(read("container.sbatch"), given)
    told = {item.key: (item.script, item.scenario) for item in found.contradictions}
    assert told == {"training.sequence_length": (8192, 4096), "training.precision": ("bf16", "fp8")}


def test_settings_of_a_branch_are_not_judged_and_told():
    with pytest.raises(InputError, match="TP is set only in some cases") as refused:
        planner.check(read("branches.sh"), scenario(**EIGHT), "branches.sh")
    assert "branches.sh:7" in str(refused.value) and "--env" in str(refused.value)
    env = {"TP": "2", "PP": "1"}
    found = planner.check(read("branches.sh"), scenario(**EIGHT), "branches.sh", env=env)
    assert found.layout.tp == 2 and found.runs
    (note,) = (item for item in found.unread if "--fp8-format" in item.subject)
    assert note.line == 12 and "only in some cases" in note.text


def test_what_was_ignored_and_misspelt_is_told(no_search):
    found = planner.check(read("ds_config.json"), scenario(**EIGHT, software="deepspeed"))
    ignored = {item.subject: item for item in found.ignored}
    assert ignored["gradient_clipping"].line == 7 and "optimizer.params.lr" in ignored
    assert "auto" in ignored["gradient_accumulation_steps"].text
    assert "did you mean 'zero_optimization.stage'" in ignored["zero_optimisation.stage"].text
    text = "--tensor-model-paralel-size 8 --micro-batch-size 1 --global-batch-size 128 --bf16"
    found = planner.check(text, scenario(**EIGHT))
    (item,) = found.ignored
    assert "did you mean '--tensor-model-parallel-size'" in item.text and found.layout.tp == 1


def test_a_here_document_is_named_and_not_read(no_search):
    found = planner.check(read("deepseek-v3.sh"), scenario("deepseek-v3-h800x2048"))
    assert [item.line for item in found.unread if "here-document" in item.text] == [12]
    assert found.layout.tp == 1


def test_a_count_that_the_environment_sets_yields_to_the_scenario(no_search):
    found = planner.check(read("fsdp.sh"), scenario(**EIGHT, num_accelerators=64))
    assert found.num_accelerators == 64 and found.contradictions[0].key != "num_accelerators"
    assert any("make 16" in item.text for item in found.otherwise)
    found = planner.check(read("fsdp.sh"), scenario(**EIGHT, num_accelerators=64),
                          env={"NNODES": "4"})  # fmt: skip
    assert found.num_accelerators == 32


def test_more_accelerators_than_the_topology_has_are_bad_input():
    text = "torchrun --nnodes 9999999 --nproc-per-node 8 p.py --micro-batch-size 1 --bf16"
    with pytest.raises(InputError, match="too large"):
        planner.check(text, scenario(**EIGHT), "big.sh")


BAD = {
    "nothing": ("echo hello\n", "nothing in it is known"),
    "empty": ("", "nothing in it is known"),
    "word": ("--tensor-model-parallel-size eight --bf16", "key|integer >= 1"),
    "zero": ("--tensor-model-parallel-size 0 --bf16", "integer >= 1"),
    "unknown value": ("--tensor-model-parallel-size $(nproc) --bf16", "command substitution"),
    "no value": ("--bf16 --tensor-model-parallel-size", "has no value"),
    "bare variable": ("torchrun p.py --micro-batch-size $MBS --bf16", "MBS is not set"),
    "json": ('{"train_batch_size": 1,', "not readable as JSON"),
    "toml": ("[training]\nlocal_batch_size = = 1\n", "not readable as TOML"),
    "yaml": ("distributed_type: FSDP\n bad: [\n", "not readable as YAML"),
    "other yaml": ("kind: Pod\nspec: 3\n", "nothing in it is known"),
    "schedule": (
        "--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule Zig",
        "is not known",
    ),
    "no shards": ("--parallelism.data_parallel_shard_degree 0", "0 is of the wrong kind"),
    "small and gated": (
        "--num-layers 4 --hidden-size 8 --num-experts 2 --swiglu --micro-batch-size 1",
        "--hidden-size: 8 is too small",
    ),
    "two jobs": (
        "torchrun p.py --micro-batch-size 1 --bf16\ntorchrun p.py --micro-batch-size 2 --bf16",
        "different settings",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_says_where_and_what_is_allowed(name):
    text, message = BAD[name]
    with pytest.raises(InputError, match=message) as refused:
        planner.check(text, scenario(**EIGHT), "job.sh")
    assert "job.sh" in str(refused.value) and "allowed" in str(refused.value)


def model_script(more):
    """Arguments that describe a model, on two lines; what is to be judged is on the second."""
    return "torchrun pretrain_gpt.py --num-layers 32 --hidden-size 4096 --seq-length 2048 " \
        "--num-attention-heads 32 --max-position-embeddings 2048 --micro-batch-size 1 --bf16 " \
        f"--global-batch-size 64 \\\n{more}"  # fmt: skip


TWO = "is fewer than the 2 experts of every token, the default of --moe-router-topk"

WRONG_MODELS = {
    # arguments → the flag, its value, what is wrong, what is allowed
    "--num-experts 1": (
        "--num-experts", "1", TWO, ">= 2, or --moe-router-topk 1 with --moe-router-pre-softmax",
    ),
    "--num-experts 8 --moe-router-topk 9": ("--moe-router-topk", "9", "more than", "from 1 to 8"),
    "--group-query-attention --num-query-groups 5": ("--num-query-groups", 5, "multiple", "1, 2"),
    "--num-experts 8 --moe-shared-expert-gate": (
        "--moe-shared-expert-gate", True, "no shared experts", "num_shared_experts",
    ),
    "--multi-latent-attention --v-head-dim 8": (
        "--v-head-dim", None, "mla.kv_lora_rank: this key is missing", "integer",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ["llama3-8b-h100x8", "mixtral-8x7b-h100x64"])
@pytest.mark.parametrize("more", WRONG_MODELS)
def test_values_that_make_no_model_are_named_with_their_flag(more, name):
    flag, value, problem, allowed = WRONG_MODELS[more]
    given = scenario(name, topology="dgx-h100", num_accelerators=64)
    with pytest.raises(InputError, match=problem) as refused:
        planner.check(model_script(more), given, "job.sh")
    error = refused.value
    assert (error.path, error.line, error.value) == ("job.sh", 2, value)
    assert flag in error.key.split() and allowed in error.allowed


@pytest.mark.parametrize("name", ["llama3-8b-h100x8", "mixtral-8x7b-h100x64"])
def test_one_expert_that_every_token_visits_is_a_model(name, no_search):
    given = scenario(name, topology="dgx-h100", num_accelerators=64)
    more = "--num-experts 1 --moe-router-topk 1 --moe-router-pre-softmax"
    found = planner.check(model_script(more), given)
    assert found.rules == () and found.layout.ep == 1
    differing = {one.key: one.script for one in found.contradictions}
    assert differing["model.moe.num_experts"] == differing["model.moe.top_k"] == 1


def test_no_experts_are_a_dense_model(no_search):
    given = scenario("mixtral-8x7b-h100x64")
    dense, none = (
        planner.check(model_script(more), given, "job.sh") for more in ("", "--num-experts 0")
    )
    assert dense.plan.step_seconds == none.plan.step_seconds
    assert [one.line for one in none.contradictions if one.key == "model.moe.num_experts"] == [2]


MODEL_FLAGS = (
    "--num-layers", "--hidden-size", "--ffn-hidden-size", "--num-attention-heads", "--vocab-size",
    "--num-query-groups", "--kv-channels", "--max-position-embeddings", "--seq-length",
    "--global-batch-size", "--num-experts", "--moe-router-topk", "--moe-ffn-hidden-size",
    "--moe-shared-expert-intermediate-size", "--moe-layer-freq", "--mtp-num-layers",
    "--q-lora-rank", "--kv-lora-rank", "--qk-head-dim", "--qk-pos-emb-head-dim", "--v-head-dim",
)  # fmt: skip
MODEL_SWITCHES = (
    "--group-query-attention", "--multi-latent-attention", "--swiglu", "--disable-bias-linear",
    "--add-qkv-bias", "--moe-shared-expert-gate", "--use-rotary-position-embeddings",
)  # fmt: skip
MODELS = (
    "llama3-8b-h100x8", "mixtral-8x7b-h100x64", "deepseek-v3-gb300x256", "nemotron-3-nano-h100x64",
    "gpt3-175b-a100x1024",
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@drawn(
    st.dictionaries(
        st.sampled_from(MODEL_FLAGS), st.sampled_from([0, 1, 2, 3, 7, 8, 24, 1000, 10**9])
    ),
    st.sets(st.sampled_from(MODEL_SWITCHES)),
    st.sampled_from(MODELS),
)
def test_any_values_of_a_model_are_judged_or_refused(values, switches, name):
    flags = [f"{flag} {value}" for flag, value in values.items()]
    text = " ".join(["torchrun pretrain_gpt.py --micro-batch-size 1", *flags, *sorted(switches)])
    try:
        judged(read_launch_script(text, "job.sh"), scenario(name))
    except InputError as error:
        assert error.path == "job.sh" and error.key and error.allowed


def test_positions_are_those_of_the_script_s_own_sequence(no_search):
    given = scenario(**EIGHT)
    assert given.training.sequence_length > 2048
    found = planner.check(model_script(""), given)
    assert found.rules == ()
    longer = model_script("").replace("--seq-length 2048", "--seq-length 4096")
    (error,) = planner.check(longer, given).rules
    assert error.rule == "positions-exist" and error.value == "training.sequence_length=4096"


@pytest.mark.parametrize(
    ("batch", "other"),
    [("1048576", None), ("2097152", 256), ("{at_least: 1000000, at_most: 1100000}", None),
     ("{at_least: 2097152, at_most: 2200000}", 256)],
)  # fmt: skip
def test_a_batch_of_tokens_or_a_band_yields_to_the_script_s(batch, other, no_search):
    text = "--micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer"
    given = planner.load_scenario(
        {
            "model": "llama3-8b", "topology": "dgx-h100", "num_accelerators": 8,
            "training": {
                "sequence_length": 8192, "precision": "bf16", "optimizer": "adam",
                "global_batch_tokens": 1048576,
            },
        },
        {"training.global_batch_tokens": batch},
    )  # fmt: skip
    found = planner.check(text, given)
    assert found.rules == () and found.layout.num_microbatches == 16
    scenario_s = {one.key: one.scenario for one in found.contradictions}
    assert scenario_s.get("training.global_batch_size") == other


def test_a_target_that_is_not_read_has_a_near_match():
    with pytest.raises(UnknownNameError, match="did you mean 'megatron'"):
        planner.check("--bf16", scenario(), target="megatorn")


def test_the_same_job_started_twice_is_one_job(no_search):
    line = "torchrun --nproc-per-node 8 p.py --micro-batch-size 1 --global-batch-size 128 --bf16"
    text = f"if [ $X ]; then\n  {line}\nelse\n  {line} --lr 1\nfi"
    assert planner.check(text, scenario(**EIGHT)).layout.dp == 8


def test_precision_that_the_part_lacks_is_a_broken_rule(no_search):
    text = "--micro-batch-size 1 --global-batch-size 128 --bf16 --fp8-format hybrid"
    given = scenario(**{**EIGHT, "topology": "dgx-a100", "training.sequence_length": 2048})
    found = planner.check(text, given)
    assert [error.rule for error in found.rules] == ["precision-exists"]
    assert found.verdict == "illegal" and found.plan is None


def test_megatron_core_s_own_refusals_are_rules(no_search):
    text = "--micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer " \
        "--tensor-model-parallel-size 2 --tp-comm-overlap"  # fmt: skip
    found = planner.check(text, scenario(**EIGHT))
    (error,) = found.rules
    assert error.rule == "megatron-core" and "sequence parallelism" in error.message
    assert found.plan is None and not found.runs


def test_all_broken_rules_are_said_not_the_first_alone(no_search):
    text = "--micro-batch-size 3 --global-batch-size 128 --bf16 --use-distributed-optimizer " \
        "--tensor-model-parallel-size 4 --sequence-parallel --context-parallel-size 2 " \
        "--seq-length 8190"  # fmt: skip
    found = planner.check(text, scenario(**EIGHT))
    assert {"batch-divides", "sp-divides-sequence", "cp-divides-sequence"} <= {
        error.rule for error in found.rules
    }  # fmt: skip
    assert all(error.source and error.message for error in found.rules)


def test_a_layout_that_does_not_fit_will_not_run(no_search):
    text = "--micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer"
    found = planner.check(text, scenario(**EIGHT, model="llama3-70b"))
    assert (found.verdict, found.runs) == ("no", False)
    assert found.plan.status == "infeasible" and found.plan.memory.verdict == "no"


def test_the_better_layout_and_what_it_gains_term_by_term():
    text = "--micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer " \
        "--tensor-model-parallel-size 8 --sequence-parallel"  # fmt: skip
    given = scenario(**EIGHT)
    found = planner.check(text, given)
    best = planner.plan(given)
    assert found.better.step_seconds == best.step_seconds
    assert found.gain_seconds == pytest.approx(found.plan.step_seconds - best.step_seconds)
    assert sum(found.terms.values()) == pytest.approx(found.gain_seconds)
    assert 0 < found.gain_fraction < 1 and found.terms["tp"] > 0


def test_tensor_parallelism_across_nodes_is_flagged_and_data_parallelism_is_not(no_search):
    text = "--micro-batch-size 1 --global-batch-size 1024 --bf16 --use-distributed-optimizer " \
        "--sequence-parallel --overlap-grad-reduce --overlap-param-gather " \
        "--tensor-model-parallel-size {} --pipeline-model-parallel-size 4"  # fmt: skip
    given = scenario("llama3-70b-h100x1024")
    wide = planner.check(text.format(16), given)
    (crossing,) = wide.crossings
    assert (crossing.group, crossing.members, crossing.inside) == ("tp", 16, 8)
    assert "ridge of leaf" in crossing.reason and crossing.exposed_seconds > 0
    assert planner.check(text.format(8), given).crossings == ()


def test_the_framework_s_own_order_is_judged_not_the_best_place(no_search):
    """With pipelines inside, data parallelism goes further out; the orders cost differently."""
    text = (
        "--micro-batch-size 1 --global-batch-size 1024 --bf16 --use-distributed-optimizer "
        "--sequence-parallel --tensor-model-parallel-size 8 --pipeline-model-parallel-size 4"
    )
    given = scenario("llama3-70b-h100x1024")
    plain, inside = (
        planner.check(text, given),
        planner.check(f"{text} --use-tp-pp-dp-mapping", given),
    )
    assert plain.plan.rank_order_name == "tp-cp-dp-pp"
    assert inside.plan.rank_order_name == "tp-cp-pp-dp"
    assert plain.plan.groups["shard"].split != inside.plan.groups["shard"].split
    free = planner.evaluate(given, plain.layout)
    assert free.step_seconds <= plain.plan.step_seconds


def test_the_document_is_json(no_search):
    import json

    found = planner.check(read("args.txt"), scenario(num_accelerators=8))
    document = json.loads(json.dumps(found.to_document(), allow_nan=False))
    assert document["runs"] is True and document["schema_version"] == 3
    assert {item["key"] for item in document["understood"]} >= {"tp", "pp", "mbs"}
    assert document["plan"]["layout"]["tp"] == 2 and document["rules"] == []


def test_what_a_file_leaves_to_the_program_is_said_and_may_be_given(no_search):
    given = scenario("llama3-8b-torchtitan-h100x64", num_accelerators=16)
    text = read("accelerate_fsdp.yaml")
    found = planner.check(text, given)
    assert found.layout.mbs == 1
    assert {"mbs", "training"} <= {item.subject for item in found.defaults}
    found = planner.check(text, given, layout="mbs=2")
    assert found.layout.mbs == 2 and "mbs" not in {item.subject for item in found.defaults}
    with pytest.raises(InputError, match="is said by the script: fsdp_config"):
        planner.check(text, given, layout="recompute=none")


def test_a_target_can_be_forced(no_search):
    given = scenario("llama3-8b-torchtitan-h100x64")
    text = "[parallelism]\ntensor_parallel_degree=2\n[compile]\nenable=true\n"
    assert planner.check(text, given).layout.tp == 2
    plain = 'x="1"\n' + text
    assert planner.check(plain, given, target="torchtitan-toml").layout.tp == 2
    with pytest.raises(InputError, match="nothing in it is known of megatron"):
        planner.check("--parallelism.tensor_parallel_degree 2", given, target="megatron")


def test_another_framework_s_scenario_is_judged_under_the_script_s_own(no_search):
    found = planner.check(read("args.txt"), scenario("llama3-8b-torchtitan-h100x64"))
    assert found.software == "megatron-core"
    assert any("does not read megatron's settings" in item.text for item in found.otherwise)
    eager = read("torchtitan-run.sh").replace("--compile.enable ", "")
    found = planner.check(eager, scenario("llama3-8b-torchtitan-h100x64", num_accelerators=8))
    assert found.software == "torchtitan-eager"
    assert any(item.subject == "software" for item in found.defaults)


def test_a_registered_model_of_torchtitan_counts(no_search):
    text = read("llama3_8b.toml").replace('"8B"', '"70B"')
    found = planner.check(text, scenario("llama3-8b-torchtitan-h100x64"))
    (said,) = (item for item in found.contradictions if item.key == "model.name")
    assert (said.script, said.scenario) == ("llama3-70b", "llama3-8b") and said.line
    assert found.plan.inputs["model"]["name"] == "llama3-70b"


@pytest.mark.parametrize(
    ("flags", "key", "value"),
    [
        ("--optimizer-cpu-offload --optimizer-offload-fraction 1.0", "offload", "optimizer"),
        ("--fine-grained-activation-offloading --offload-modules core_attn moe_act", "offload",
         "activations"),
        ("--context-parallel-size 4 --cp-comm-type a2a+p2p "
         "--hierarchical-context-parallel-sizes 2 2", "cp_a2a", 2),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 4",
         "recompute_layers", 4),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 99",
         "recompute_layers", 0),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
         "recompute", "full"),
        ("--recompute-granularity selective --recompute-modules core_attn mlp", "recompute",
         "selective"),
    ],
)  # fmt: skip
def test_choices_that_a_search_does_not_try_are_judged(flags, key, value, no_search):
    text = (
        f"--micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer {flags}"
    )
    found = planner.check(text, scenario(**EIGHT))
    assert getattr(found.layout, key) == value and found.rules == ()
    approximated = "uniform" in flags or "mlp" in flags
    assert any(item.subject == "recompute" for item in found.otherwise) is approximated


@pytest.mark.parametrize(
    ("schedule", "kind", "vp"),
    [("1F1B", "1f1b", 1), ("Interleaved1F1B", "interleaved", 2), ("ZBVZeroBubble", "zb-v", 2),
     ("DualPipeV", "dualpipev", 2), ("InterleavedZeroBubble", "interleaved-zb", 2),
     ("GPipe", "1f1b", 1)],
)  # fmt: skip
def test_schedules_of_torchtitan(schedule, kind, vp, no_search):
    text = "torchrun --nproc-per-node 8 -m torchtitan.train --module llama3 --config llama3_8b " \
        "--compile.enable --parallelism.pipeline_parallel_degree 4 --training.seq_len 8192 " \
        "--training.local_batch_size 8 activation-checkpoint:full " \
        f"--parallelism.pipeline_parallel_schedule {schedule}"  # fmt: skip
    found = planner.check(text, scenario("llama3-8b-torchtitan-h100x64"))
    assert (found.layout.schedule, found.layout.vp, found.rules) == (kind, vp, ())
    assert any(item.subject == "schedule" for item in found.otherwise) is (schedule == "GPipe")
