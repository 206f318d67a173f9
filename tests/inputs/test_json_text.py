"""JSON: what `json.loads` makes of it where both read it, places, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.inputs import json_text
from planner.inputs.documents import MAX_DEPTH, MAX_NODES
from planner.inputs.files import data_root
from planner.inputs.json_text import json_value, read_json

ALLOWED = "a text of this test"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def tuples(value: object) -> object:
    if isinstance(value, list):
        return tuple(map(tuples, value))
    return {k: tuples(v) for k, v in value.items()} if isinstance(value, dict) else value


@given(VALUES, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_what_python_writes_is_read_as_it_was(value: object, indent: object, ascii_: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_)  # type: ignore[arg-type]
    assert read_json(text, "x.json").plain() == tuples(value)
    assert json_value(text, "x.json", ALLOWED) == value


@given(st.text('{}[]",:0123456789.eE+-truefalsn \n\\', max_size=30))
def test_what_python_refuses_is_refused(text: str) -> None:
    try:
        value = json.loads(text)
    except ValueError:
        for read in (read_json, value_of):
            with pytest.raises(InputError):
                read(text, "x.json")
        return
    try:
        found = read_json(text, "x.json").plain()
    except InputError as error:
        assert "given twice" in error.message or "finite" in error.message  # all else is the same
        with pytest.raises(InputError) as caught:
            value_of(text, "x.json")
        assert vars(caught.value) | {"allowed": ""} == vars(error) | {"allowed": ""}
    else:
        assert found == tuples(value)
        assert value_of(text, "x.json") == value


def test_parts_know_their_places() -> None:
    root = read_json('{\n  "a": 1,\n  "b": {"c": [10, 20]}\n}\n', "f/config.json")
    inner = root.child("b")
    assert inner is not None
    items = inner.child("c")
    assert items is not None
    second = items.child(1)
    assert second is not None
    assert (inner.line, inner.column, inner.key) == (3, 3, "b")
    assert (items.line, items.column, items.key) == (3, 9, "b.c")
    assert (second.value, second.line, second.column, second.key) == (20, 3, 19, "b.c.1")
    assert second.path == "f/config.json"


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        ('{"a": 1,\n "a": 2}', "a: the key is given twice, first on line 1", (2, 2)),
        ('{"a": NaN}', "a: not readable as JSON: NaN where a value is expected", (1, 7)),
        ('{"a": Infinity}', "Infinity where a value is expected", (1, 7)),
        ('{"a": -Infinity}', "where a value is expected", (1, 7)),
        ('{"a": 1e999}', "a: 1e999 is not a finite number", (1, 7)),
        ('{"a": 01}', "the end of the number is expected", (1, 8)),
        ('{"a": 1.}', "the end of the number is expected", (1, 8)),
        ("{'a': 1}", "a key in double quotes is expected", (1, 2)),
        ('{"a": 1,}', "a key in double quotes is expected", (1, 9)),
        ('{"a": [1,]}', "] where a value is expected", (1, 10)),
        ('{"a": 1', "the text ends", (1, 8)),
        ('{"a": "x\ny"}', "text without its end, or with a line break", (1, 7)),
        ('{"a": "\\ud800"}', "an escape that stands for nothing", (1, 7)),
        ('{"a": 1} // no', "there is more behind the document", (1, 10)),
        ("", "the text ends", (1, 1)),
        ("[" * (MAX_DEPTH + 2), "is nested too deeply", (1, MAX_DEPTH + 1)),
        ("[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH, "is nested too deeply", (1, MAX_DEPTH + 1)),
        ('{"a": ' + "9" * 400 + "}", "is not a finite number", (1, 7)),
    ],
)  # fmt: skip
def test_doubtful_texts_are_refused_by_place(text: str, said: str, place: tuple[int, int]) -> None:
    for read in (read_json, value_of):
        with pytest.raises(InputError) as caught:
            read(text, "x.json")
        assert said in str(caught.value)
        assert (caught.value.line, caught.value.column) == place


@pytest.mark.parametrize("depth", [1, MAX_DEPTH - 1, MAX_DEPTH])
def test_what_is_not_too_deep_is_read(depth: int) -> None:
    text = "[" * depth + "]" * depth
    assert value_of(text, "x.json") == json.loads(text)
    assert read_json(text, "x.json").plain() == tuples(json.loads(text))


def test_pairs_of_surrogates_are_one_character() -> None:
    text = '{"a": "\\ud83d\\ude00"}'
    assert value_of(text, "x.json") == read_json(text, "x.json").plain() == {"a": "\U0001f600"}


# ---------------------------------------------------------------- values alone


def value_of(text: str, path: str) -> object:
    return json_value(text, path, ALLOWED)


def test_a_line_of_many_keeps_its_number() -> None:
    with pytest.raises(InputError, match=r"x\.jsonl:7:2: not readable as JSON: broken where a key"):
        json_value("{broken", "x.jsonl", ALLOWED, 7)
    with pytest.raises(
        InputError, match=r"x\.jsonl:9:2: b: the key is given twice, first on line 8"
    ):
        json_value('{"a": 1, "b": 2,\n "b": 3}', "x.jsonl", ALLOWED, 8)


def test_the_caller_says_what_is_allowed() -> None:
    with pytest.raises(InputError) as caught:
        value_of('{"a": ', "x.json")
    assert (
        str(caught.value)
        == "x.json:1:7: a: not readable as JSON: the text ends; allowed: " + ALLOWED
    )


def test_sound_text_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tens of thousands of published rows are read: places are looked for in wrong ones only."""
    monkeypatch.setattr(json_text, "_Reader", None)
    file = Path(data_root(), "scenarios", "published", "measured_runs.jsonl")
    for line in file.read_text("utf-8").splitlines()[:50]:
        assert value_of(line, "x.jsonl") == json.loads(line)


def test_what_is_too_large_for_a_tree() -> None:
    items = "[" + "1," * (MAX_NODES + 1) + "1]"
    with pytest.raises(InputError, match="more than 100000 parts"):
        read_json(items, "x.json")
    assert value_of(items, "x.json") == json.loads(items)
    with pytest.raises(InputError, match=r"x\.json:2:1: not readable as JSON: Expecting"):
        value_of(items[:-2] + "\n]", "x.json")
    with pytest.raises(InputError, match=r"x\.json:1: not readable as JSON: a key is given twice"):
        value_of('{"a": 1, "a": ' + items + "}", "x.json")
