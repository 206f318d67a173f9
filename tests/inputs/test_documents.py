"""Trees of documents: where values stand, and errors about them."""

from __future__ import annotations

from planner.errors import Place
from planner.inputs.documents import Node, from_plain, show
from planner.inputs.yaml_text import read_yaml

TREE = read_yaml("a:\n  b: [10, {c: x}]\n", "f.yaml")


def test_descendants_are_reached_by_keys_and_positions() -> None:
    c = TREE.descendant("a", "b", 1, "c")
    assert c is not None
    assert (c.value, c.place) == ("x", Place("f.yaml", 2, 12, "a.b.1.c"))
    assert TREE.descendant("a", "b", "1", "c") == c
    assert TREE.descendant() == TREE
    for missing in (("b",), ("a", "b", 2), ("a", "b", 0, "c"), ("a", "b", -1)):
        assert TREE.descendant(*missing) is None


def test_items_are_those_of_lists() -> None:
    numbers = TREE.descendant("a", "b")
    assert numbers is not None
    assert [item.plain() for item in numbers.items] == [10, {"c": "x"}]
    assert TREE.items == Node("text").items == ()


def test_errors_stand_at_their_value() -> None:
    item = TREE.descendant("a", "b", 0)
    assert item is not None
    error = item.error("is wrong", allowed="something else", nearest="11")
    assert error.value == 10
    assert str(error) == (
        "f.yaml:2:7: a.b.0: is wrong; allowed: something else; did you mean '11'?"
    )


def test_plain_values_have_a_path_and_keys_but_no_lines() -> None:
    tree = from_plain({"a": [1, {"b": None}]}, "plan.json", "inputs")
    inner = tree.descendant("a", 1, "b")
    assert inner is not None
    assert inner.place == Place("plan.json", key="inputs.a.1.b")
    assert tree.plain() == {"a": (1, {"b": None})}


def test_values_are_shown_shortly() -> None:
    values: tuple[object, ...] = (None, True, 2.0, (1,), {})
    assert show("x" * 100) == "'" + "x" * 56 + "..."
    assert [show(value) for value in values] == ["null", "true", "2.0", "a list", "a mapping"]
