"""Settings as text: words safe for bash, sections of YAML."""

from __future__ import annotations

import shlex

from ruamel.yaml import YAML

from planner.frameworks.text import bash_array, by_section, flag_lines, one_line, yaml_lines


def test_flags_are_a_line_each_and_their_values_one_word_each():
    lines = flag_lines(
        {"--on": True, "--off": False, "--count": 3, "--modules": "moe_act layernorm",
         "--pattern": "([0]*3+[1]*58)", "--stages": [["layers.0", "layers.1"], ["norm"]]}
    )  # fmt: skip
    assert lines[0] == "--on"
    assert [shlex.split(line) for line in lines] == [
        ["--on"], ["--off", "False"], ["--count", "3"], ["--modules", "moe_act", "layernorm"],
        ["--pattern", "([0]*3+[1]*58)"], ["--stages", "layers.0,layers.1", "norm"],
    ]  # fmt: skip


def test_an_array_has_its_lines_inside():
    assert bash_array("A", ["# title", "--on"]) == ["A=(", "  # title", "  --on", ")"]


def test_settings_fall_into_sections_and_those_without_one_come_first():
    settings = {"a.x": 1, "b.c.y": "two", "z": [True], "a.w": None}
    assert by_section(settings) == {
        "a": {"x": 1, "w": None},
        "b.c": {"y": "two"},
        "": {"z": [True]},
    }
    text = "\n".join(yaml_lines({"a.x": 1, "z": [True], "a.w": None}))
    assert text.startswith("z: ")
    assert YAML(typ="safe").load(text) == {"z": [True], "a": {"x": 1, "w": None}}


def test_names_of_users_stay_on_their_line():
    assert one_line("a\nb\tc\x1b") == "a b c "
