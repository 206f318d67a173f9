"""Rules of frameworks: each has an id, a sentence and a source; refusals are about the job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.frameworks import accelerate, deepspeed
from planner.frameworks.job import Refusal, reasons_of
from planner.frameworks.layout_rules import FRAMEWORK_RULES, OTHERS, rules_named
from planner.frameworks.megatron import rules as megatron
from planner.frameworks.read import RUNTIME_REFUSALS, runtime_refusals
from planner.frameworks.rule import SettingsRule
from planner.frameworks.target import target
from planner.frameworks.torchtitan import rules as torchtitan
from planner.frameworks.torchtitan.versions import VERSIONS
from planner.inputs.files import names
from planner.inputs.values import load
from planner.planning.export import export_plan, launch_job
from planner.problem.software import Software
from tests.report.fabricated import LAYOUT, fabricated_plan

REFUSALS = {
    "megatron": (*megatron.CORE_REFUSALS, *megatron.MODEL_REFUSALS),
    "torchtitan": torchtitan.REFUSALS,
    "deepspeed": deepspeed.REFUSALS,
    "accelerate": accelerate.REFUSALS,
}
MODULES = (megatron, torchtitan, deepspeed)


def job_with(**changes):
    return launch_job(replace(fabricated_plan(), layout=replace(LAYOUT, **changes)))


@pytest.mark.parametrize("framework", REFUSALS)
def test_refusals_have_an_id_and_a_source_and_their_sentence_is_of_the_job(framework):
    refusals = REFUSALS[framework]
    assert len({refusal.id for refusal in refusals}) == len(refusals)
    for refusal in refusals:
        assert refusal.source and "{" not in refusal.reason(job_with())


def test_a_sentence_takes_values_of_users_as_they_are():
    refusal = Refusal("any", "model {model.name}: no", "a test", lambda job: True)
    job = job_with()
    named = job.scenario.model.replace(name="{layout} %s")
    job = replace(job, scenario=job.scenario.replace(model=named))
    assert reasons_of([refusal], job) == ["model {layout} %s: no"]


def settings_rules():
    return [
        value for module in MODULES for value in vars(module).values()
        if isinstance(value, SettingsRule)
    ]  # fmt: skip


@pytest.mark.parametrize("rule", settings_rules(), ids=lambda rule: rule.id)
def test_rules_on_settings_become_broken_rules_with_numbers_filled_in(rule):
    error = rule.broken_by("x=1", ["x=2"], num_layers=7, stage_layers=3, cp=2, version="v 1.0")
    assert (error.rule, error.value, error.nearest) == (rule.id, "x=1", ("x=2",))
    assert "{" not in error.message + error.source and error.message and error.source


def test_rules_on_layouts_are_those_of_the_frameworks_once_each():
    rules = [rule for module in MODULES for rule in module.LAYOUT_RULES] + list(OTHERS)
    assert [rule.id for rule in rules] == list(FRAMEWORK_RULES)
    named = {
        name for software in names("software")
        for name in load(software, "software", Software).rules
    }  # fmt: skip
    assert named == set(FRAMEWORK_RULES), "a rule that no profile has, or the reverse"


def test_rules_of_a_profile_are_in_its_order():
    software = load("deepspeed", "software", Software)
    assert tuple(rule.id for rule in rules_named(software)) == software.rules


def test_what_export_refuses_of_the_core_check_cites_by_the_same_sentence():
    job = job_with(sp=False)
    (error,) = runtime_refusals("megatron", job)
    assert (error.rule, error.source) == ("megatron-core", megatron.VERSION)
    with pytest.raises(Exception, match="only under sequence parallelism") as refused:
        export_plan(replace(fabricated_plan(), layout=job.layout), "megatron")
    assert error.message in refused.value.reasons
    assert runtime_refusals("deepspeed", job) == [] and set(RUNTIME_REFUSALS) == {"megatron"}


@pytest.mark.parametrize("version", VERSIONS.values(), ids=lambda version: version.target)
def test_settings_of_a_version_are_in_its_table(version):
    known = target(version.target).arities()
    settings = (
        version.schedule, version.stage_modules, version.layers_per_stage, version.local_batch,
        version.compile, version.async_tp, version.no_cuda_graphs,
    )  # fmt: skip
    assert {setting for setting in settings if setting is not None} <= set(known)
