"""The table of layout keys: it is complete, and everything that reads it agrees with it."""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.layouts.keys import KEYS, Choice, Form, LayoutKey, layout_key
from planner.layouts.layout import COLUMNS, Layout, LayoutTable
from planner.problem.scenario import Search
from planner.report.text.layouts import details_in_words
from tests.oracles import layouts

ROWS = list(KEYS.values())
KEY = pytest.mark.parametrize("key", ROWS, ids=lambda key: key.name)


def test_the_keys_are_those_of_a_layout() -> None:
    own = {field.name for field in fields(Layout)}
    assert {key.name for key in ROWS if not key.derived} == own
    assert all(isinstance(getattr(Layout, key.name), property) for key in ROWS if key.derived)


def test_the_columns_are_those_of_a_table() -> None:
    assert set(COLUMNS) | {"stage_layers"} == {field.name for field in fields(LayoutTable)}


@KEY
def test_defaults_are_those_of_a_layout(key: LayoutKey) -> None:
    assert getattr(Layout(), key.name) == key.default


@KEY
def test_search_lists_what_may_be_restricted(key: LayoutKey) -> None:
    assert (key.name in Search.model_fields) == (key.choice is not Choice.GIVEN)
    if key.name in Search.model_fields:
        assert Search.model_fields[key.name].description == key.meaning
        assert getattr(Search(), key.name) is None


def sample(key: LayoutKey) -> st.SearchStrategy[Any]:
    forms: dict[Form, st.SearchStrategy[Any]] = {
        Form.DEGREE: st.integers(1, 3),
        Form.COUNT: st.integers(0, 3),
        Form.FLAG: st.booleans(),
        Form.CHOICE: st.sampled_from(key.values or ("",)),
        Form.AXES: st.sampled_from(["none", "tp", "tp+dp", "tp+dp+pp+ep"]),
        Form.LAYERS: st.lists(st.integers(1, 9), min_size=1).map(tuple),
    }
    return forms[key.form]


def text_of(key: LayoutKey, value: Any) -> str:
    return "+".join(map(str, value)) if key.form is Form.LAYERS else str(value)


@KEY
@given(data=st.data())
def test_what_is_written_is_read(key: LayoutKey, data: st.DataObject) -> None:
    value = data.draw(sample(key))
    assert key.parse(text_of(key, value)) == value
    assert key.parse(value) == value
    if key.column in COLUMNS:
        assert key.value_of(key.code(value)) == value


@KEY
@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "tp+xp", "1+x"])
def test_what_is_no_value_is_refused_with_what_is(key: LayoutKey, text: str) -> None:
    with pytest.raises(InputError) as caught:
        key.parse(text)
    assert caught.value.key == key.name
    assert caught.value.allowed == key.allowed


def test_numbers_have_their_bounds() -> None:
    assert KEYS["zero_stage"].parse("0") == 0
    for name, text in (("tp", "0"), ("zero_stage", "4"), ("mbs", str(10**9 + 1))):
        with pytest.raises(InputError, match="none of its values"):
            KEYS[name].parse(text)


def test_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        layout_key("recomputed")
    assert caught.value.nearest == "recompute"


@given(layouts())
def test_a_layout_survives_its_document_and_its_table(layout: Layout) -> None:
    document = layout.to_document()
    assert list(document) == list(KEYS)
    assert LayoutTable.from_layouts([layout]).row(0) == layout
    again = Layout.from_document(document)
    meaningless = {name for name, value in document.items() if value is None}
    assert all(getattr(again, n) == getattr(layout, n) for n in KEYS if n not in meaningless)


def test_a_report_says_every_phrase_of_the_table() -> None:
    layout = Layout(
        tp=2, pp=2, dp_shard=2, mbs=2, num_microbatches=4, recompute="full", recompute_layers=2,
        offload="optimizer", overlap="dp", stage_layers=(3, 5),
    )  # fmt: skip
    phrases = details_in_words(layout)
    assert phrases == [
        "4 micro-batches of 2", "1F1B", "ZeRO-1 over 2",
        "full recompute of the first 2 layers of a stage", "optimizer on host", "overlap of dp",
        "layers by stage 3 + 5",
    ]  # fmt: skip
