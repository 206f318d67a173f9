"""Megatron's layout texts and expert patterns: inverse of the exporter, and Python itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.frameworks.megatron import flags as megatron_flags
from planner.frameworks.megatron.model import expert_layers
from planner.frameworks.megatron.read import DEFAULT_ORDER
from planner.frameworks.megatron.rules import VERSION
from planner.frameworks.megatron.stages import layout_chunks, layout_text, read_stages
from planner.frameworks.read import read_launch_script
from planner.frameworks.script import Interpretation
from planner.frameworks.target import target


@given(st.lists(st.integers(1, 40), min_size=2, max_size=40), st.integers(0, 2))
def test_layout_texts_are_read_as_they_were_written(chunks, predictions):
    found = layout_chunks(layout_text(chunks, predictions))
    assert [chunk.count("t") for chunk in found] == chunks
    assert found[0][0] == "E" and found[-1].endswith("m" * predictions + "L")


LAYOUTS = {
    "Et*2|t*4|t*4|t*3L": [2, 4, 4, 3],
    "Ettt|(tt|)*29,m|L": [3, *[2] * 29, 0, 0],  # as DeepSeek-V3's
    "E|(t|)*2L": [0, 1, 1, 0],
    "E|((t|)*2t*2|)*2L": [0, 1, 1, 2, 1, 1, 2, 0],
    "Et": [1],
}


@pytest.mark.parametrize("text", LAYOUTS)
def test_layout_texts_as_users_write_them(text):
    assert [chunk.count("t") for chunk in layout_chunks(text)] == LAYOUTS[text]


@pytest.mark.parametrize("text", ["", "Ex|L", "E(t", "(t|)*99999999", "[t]", "E*|L", "t*", "1"])
def test_what_is_no_layout(text):
    assert layout_chunks(text) is None


@given(st.integers(0, 5), st.integers(1, 6), st.integers(1, 6), st.integers(0, 3))
def test_patterns_are_those_of_python(first, period, times, rest):
    text = f"([0]*{first}+([0]*{period - 1}+[1])*{times}+[0]*{rest})"
    expected = eval(text)
    assert expert_layers(text, len(expected)) == expected
    assert expert_layers(text, len(expected) + 1) is None


@pytest.mark.parametrize("text", ["__import__('os')", "[2]", "([1]", "[1])", "[1]*", "-1", "", "0"])
def test_nothing_else_is_evaluated(text):
    assert expert_layers(text, 1) is None


def stages(flags, num_layers, pp):
    result = Interpretation(read_launch_script(f"--bf16 {flags}"), DEFAULT_ORDER)
    read_stages(result, num_layers, pp)
    rules = [error.rule for error in result.broken]
    return result.layout.get("vp"), result.layout.get("stage_layers"), rules


CASES = {
    # flags, layers, pp → vp, layers of stages, rules
    ("", 32, 4): (1, [8] * 4, []),
    ("--num-layers-per-virtual-pipeline-stage 4", 32, 4): (2, [8] * 4, []),
    ("--num-virtual-stages-per-pipeline-rank 2", 32, 4): (2, [8] * 4, []),
    ("--decoder-first-pipeline-num-layers 5 --decoder-last-pipeline-num-layers 7", 32, 4):
        (1, [5, 10, 10, 7], []),
    ("--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split", 30, 4):
        (1, [7, 8, 8, 7], []),
    ("--pipeline-model-parallel-layout 'Et*7|t*8|t*8|t*7L'", 30, 4): (1, [7, 8, 8, 7], []),
    ("--pipeline-model-parallel-layout 'Et*3|t*4|t*4|t*3L'", 14, 2): (2, [3, 4, 4, 3], []),
    ("--pipeline-model-parallel-layout 'Et*3|t*4|t*3|t*4L'", 14, 2): (2, [6, 8], []),
    ("", 30, 4): (None, None, ["stages-even"]),
    ("--num-layers-per-virtual-pipeline-stage 3", 32, 4): (None, None, ["stages-even"]),
    ("--num-virtual-stages-per-pipeline-rank 3", 32, 4): (None, None, ["stages-even"]),
    ("--decoder-first-pipeline-num-layers 5", 32, 4): (1, [5, 9, 9, 9], []),
    ("--decoder-first-pipeline-num-layers 6", 32, 4): (None, None, ["stage-layers"]),
    ("--pipeline-model-parallel-layout 'Et*7|t*8|t*7L'", 22, 2): (None, None, ["pipeline-layout"]),
    ("--pipeline-model-parallel-layout 'Et*7|t*8|x'", 22, 3): (None, None, ["pipeline-layout"]),
    ("--pipeline-model-parallel-layout 'Et|tL' --num-virtual-stages-per-pipeline-rank 2", 2, 2):
        (None, None, ["one-pipeline-split"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_stages_are_those_that_megatron_builds(case):
    assert stages(*case) == CASES[case]


def test_every_flag_that_code_uses_is_in_the_table():
    named = {name: flag for name, flag in vars(megatron_flags).items() if name.isupper()}
    assert len(set(named.values())) == len(named)
    assert set(named.values()) <= set(target("megatron").arities())


def test_rules_name_the_version_of_the_table():
    assert target("megatron").version == VERSION
