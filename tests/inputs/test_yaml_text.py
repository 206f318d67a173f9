"""YAML text into trees: scalars of YAML 1.2, JSON as a subset, and any text at all."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.inputs.documents import from_plain
from planner.inputs.yaml_text import read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("010", 10),
        ("0o10", 8),
        ("0x10", 16),
        ("-3", -3),
        ("450e9", 450e9),
        ("15e12", 15e12),
        ("1.5", 1.5),
        ("2024-07-01", "2024-07-01"),
        ("'8'", "8"),
        ("12:30", "12:30"),
    ],
)
def test_scalars(text: str, value: object) -> None:
    plain = read_yaml(text, "x").plain()
    assert plain == value
    assert type(plain) is type(value)


plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(min_codepoint=32, max_codepoint=126)),
    lambda inner: (
        st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text("abcdef", min_size=1), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(plain_values)
def test_json_reads_back(value: object) -> None:
    assert read_yaml(json.dumps(value), "x").plain() == value
    assert from_plain(value).plain() == value


@given(st.text(max_size=60))
def test_any_text_is_a_tree_or_an_input_error(text: str) -> None:
    try:
        read_yaml(text, "x")
    except InputError as error:
        assert error.path == "x"
        assert "\n" not in str(error)
