"""Strict JSON: what `json.loads` makes of it where both read it, places, what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.inputs.json_tree import MAX_DEPTH, read_json

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


@given(st.text('{}[]",:0123456789.eE+-truefalsn \n\\', max_size=30))
def test_what_python_refuses_is_refused(text: str) -> None:
    try:
        value = json.loads(text)
    except ValueError:
        with pytest.raises(InputError):
            read_json(text, "x.json")
        return
    try:
        found = read_json(text, "x.json").plain()
    except InputError as error:
        assert "given twice" in error.message or "finite" in error.message  # all else is the same
    else:
        assert found == tuples(value)


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
        ("[" * (MAX_DEPTH + 2), "is nested too deeply", (1, MAX_DEPTH + 2)),
        ('{"a": ' + "9" * 400 + "}", "is not a finite number", (1, 7)),
    ],
)  # fmt: skip
def test_doubtful_texts_are_refused_by_place(text: str, said: str, place: tuple[int, int]) -> None:
    with pytest.raises(InputError) as caught:
        read_json(text, "x.json")
    assert said in str(caught.value)
    assert (caught.value.line, caught.value.column) == place


def test_what_is_too_large_is_refused() -> None:
    with pytest.raises(InputError, match="too long"):
        read_json(" " * (5 * 2**20), "x.json")
    with pytest.raises(InputError, match="too many parts"):
        read_json("[" + "1," * 200_000 + "1]", "x.json")
