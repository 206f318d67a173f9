"""Plans that a target cannot express: refused with the best it can, or re-solved and said so."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

import planner
from planner.advise.expressible import best_expressible
from planner.cli import main
from planner.errors import ExportError
from planner.planning.plan import Plan


@pytest.fixture(scope="module")
def titan():
    """A plan of ZeRO-3 under torchtitan's profile: Megatron's exports have neither."""
    scenario = planner.load_scenario("llama3-8b-torchtitan-h100x64")
    found = planner.plan(scenario, top_k=1)
    assert found.layout.zero_stage in (2, 3)
    return found


def test_refusal_says_every_reason_and_the_best_expressible(titan):
    with pytest.raises(ExportError) as refused:
        planner.export_plan(titan, "megatron")
    text = str(refused.value)
    assert "scored for software torchtitan" in text
    assert f"zero_stage {titan.layout.zero_stage} is not expressible" in text
    assert "the best expressible plan is" in text and "--resolve writes it" in text


def test_the_resolved_plan_is_the_best_of_the_target_s_software(titan):
    found = best_expressible(titan, "megatron")
    own = planner.load_scenario(
        "llama3-8b-torchtitan-h100x64",
        {"software": "megatron-core", "search.orders": "framework"},
    )
    best = planner.plan(own, top_k=1)
    assert found.plan.layout == best.layout
    assert found.plan.step_seconds == pytest.approx(best.step_seconds)
    assert found.loss_fraction == pytest.approx(best.step_seconds / titan.step_seconds - 1)


def test_resolve_writes_the_plan_and_what_it_loses(titan):
    files = planner.export_plan(titan, "megatron", resolve=True)
    assert set(files) == {"megatron-args.sh", "plan.json"}
    head = files["megatron-args.sh"].partition("MEGATRON_ARGS=(")[0]
    assert "not the plan given but the best that this target expresses: predicted" in head
    assert "# because: zero_stage" in head
    written = Plan.from_document(json.loads(files["plan.json"]))
    assert written.inputs_sha256 in head and written.inputs_sha256 != titan.inputs_sha256
    assert planner.export_plan(written, "megatron")  # expressible as it stands


@pytest.mark.slow
def test_the_command_writes_nothing_and_ends_with_1(titan, tmp_path):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(titan.to_document()))
    command = ["export", str(file), "--target", "megatron", "--out", str(tmp_path / "out")]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 1 and "--resolve writes it" in refused.output
    assert not (tmp_path / "out").exists()
    done = CliRunner().invoke(main, [*command, "--resolve"])
    assert done.exit_code == 0
    assert (tmp_path / "out" / "megatron-args.sh").exists()


@pytest.mark.slow
def test_what_no_search_can_mend_is_said(titan):
    model = {**titan.inputs["model"], "sliding_window": 128}
    windowed = replace(titan, inputs={**titan.inputs, "model": model})
    with pytest.raises(ExportError, match="no plan of this scenario is expressible in megatron"):
        planner.export_plan(windowed, "megatron")


def test_a_plan_that_is_expressible_is_not_solved_again(titan):
    assert planner.export_plan(titan, "json", resolve=True) == planner.export_plan(titan, "json")


def test_experts_with_pipelines_inside_data_parallelism_are_moved():
    scenario = planner.load_scenario(
        "mixtral-8x7b-h100x64", {"search": "{tp: [1, 2], mbs: 1, vp: [1, 2], etp: 1}"}
    )
    given = planner.evaluate(scenario, "tp=2,pp=4,ep=4,etp=1,mbs=1")
    order = [("tp.ep", 2), ("pp", 4), ("dp_shard.ep", 2), ("dp_shard", 4)]
    moved = replace(given, rank_order=tuple(order))
    with pytest.raises(ExportError, match="etp·ep is tp·cp"):
        planner.export_plan(moved, "megatron")
