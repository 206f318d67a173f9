"""The tables of launch targets: read both ways, of known keys, in the wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

import planner
from planner.errors import UnknownNameError
from planner.frameworks.read import INTERPRETERS
from planner.frameworks.target import target
from planner.frameworks.write import EXPORTS
from planner.inputs.files import names, resolve
from planner.layouts.keys import CP_KINDS, DISPATCHERS, RECOMPUTE
from planner.layouts.layout import Layout
from planner.planning.plan import SCHEMA_VERSION
from planner.problem.blocks import MLA, MoE
from planner.problem.model import Model
from planner.problem.training import Training

CODED = {"recompute": RECOMPUTE, "cp_kind": CP_KINDS, "dispatcher": DISPATCHERS}
PARTS = {
    "training": Training, "model": Model, "model.moe": MoE, "model.mla": MLA,
}  # fmt: skip


def test_every_export_has_a_table_and_every_table_an_export():
    assert sorted(EXPORTS) == names("target")
    for name in EXPORTS:
        assert target(name).name == name and target(name).version


@pytest.mark.parametrize("name", EXPORTS)
def test_keys_and_values_are_the_planner_s(name):
    to = target(name)
    for key in {*to.names, *to.codes, *to.limits} - {"order", "registry", "recompute_method"}:
        part, _, field = key.rpartition(".")
        fields = dir(PARTS[part]) + list(PARTS[part].model_fields) if part else dir(Layout())
        assert field in fields, key
    for key, values in CODED.items():
        assert set(to.codes.get(key, {})) <= set(values)
    assert set(to.codes.get("order", {})) <= set(to.orders)


@pytest.mark.parametrize("name", EXPORTS)
def test_codes_are_read_back_as_they_are_written(name):
    to = target(name)
    for key, codes in to.codes.items():
        for value in codes:
            assert to.read(to.settings(key, value))[key] == value, key
    for key, setting in to.names.items():
        assert to.settings(key, 3) == {setting: 3} and to.read({setting: 3})[key] == 3
    assert len(set(to.names.values())) == len(to.names)


def test_a_script_s_text_reads_as_the_values_it_means():
    read = target("megatron").read(
        {"--recompute-granularity": "full", "--recompute-method": "uniform",
         "--recompute-num-layers": "1", "--bf16": True, "--sequence-parallel": True}
    )  # fmt: skip
    assert read["recompute"] == "full" and read["training.precision"] == "bf16"
    assert read["sp"] == "true" and read["zero_stage"] == "0"


def test_the_plan_file_s_version_is_the_schema_s():
    assert target("json").version == f"plan schema {SCHEMA_VERSION}"


def test_an_unknown_target_has_a_near_match():
    with pytest.raises(UnknownNameError, match="megatron"):
        target("megatorn")


def test_settings_that_are_read_take_as_many_values_as_the_table_says():
    arities = target("megatron").arities()
    assert arities["--sequence-parallel"] == "switch" and arities["--seq-length"] == "one"
    # a code writes it as one text, a script gives it word by word
    assert arities["--recompute-modules"] == "many"


@pytest.mark.parametrize("name", EXPORTS)
def test_a_table_lies_beside_the_code_that_uses_it(name):
    assert resolve("target", name).is_relative_to(Path(planner.__file__).parent / "frameworks")
    assert not target(name).reads or name in INTERPRETERS
