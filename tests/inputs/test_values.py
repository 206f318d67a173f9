"""Reading and validating documents, on small classes of our own."""

import json
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.inputs import values
from planner.inputs.values import Reference, Strict, from_document, load, parse


class Leaf(Strict):
    size: int
    label: str = "none"


class Branch(Strict):
    leaves: tuple[Leaf, ...]
    ratio: float = 1.0


class Tree(Strict):
    branch: Annotated[Branch, Reference("model")]


# ---------------------------------------------------------------- values


def test_strict_is_frozen_and_closed() -> None:
    leaf = Leaf(size=1)
    with pytest.raises(ValueError, match="frozen"):
        leaf.size = 2  # type: ignore[misc]
    with pytest.raises(ValueError, match="extra"):
        Leaf(size=1, sise=2)  # type: ignore[call-arg]


def test_of_raises_our_own_errors() -> None:
    assert Leaf.of(size=1, label="a") == Leaf(size=1, label="a")
    with pytest.raises(InputError, match="is text") as caught:
        Leaf.of(size="x", label="a")
    assert caught.value.key == "size"
    with pytest.raises(InputError, match="this key is missing"):
        Leaf.of(label="a")


def test_replace_validates() -> None:
    leaf = Leaf(size=1, label="a")
    assert leaf.replace(size=2) == Leaf(size=2, label="a")
    with pytest.raises(InputError, match=r"size: 'x' is text; allowed: an integer"):
        leaf.replace(size="x")
    with pytest.raises(TypeError, match="sise"):
        leaf.replace(sise=2)


# ---------------------------------------------------------------- reading

TREE = """\
branch:
  leaves:
  - size: 1
    label: "a"
  - {size: 2}
  ratio: 2.5
"""
VALUE = Tree(branch=Branch(leaves=(Leaf(size=1, label="a"), Leaf(size=2)), ratio=2.5))


def test_parse_yaml() -> None:
    assert parse(TREE, "tree.yaml", Tree) == VALUE


def test_parse_json_with_tabs() -> None:
    text = json.dumps(VALUE.model_dump(), indent="\t")
    assert parse(text, "tree.json", Tree) == VALUE


def test_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    path = tmp_path / "tree.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + TREE.replace("\n", "\r\n").encode())
    assert load(path, "model", Tree) == VALUE


def test_anchors_are_fine() -> None:
    text = "branch: {leaves: [&one {size: 1}, *one, *one]}"
    assert parse(text, "x", Tree).branch.leaves == (Leaf(size=1),) * 3


def test_reference_is_read_in_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "branch.yaml").write_text("leaves: []\nratio: x\n")
    (tmp_path / "tree.yaml").write_text("branch: branch.yaml\n")
    with pytest.raises(InputError) as caught:
        load(tmp_path / "tree.yaml", "model", Tree)
    place = (caught.value.path, caught.value.line, caught.value.column, caught.value.key)
    assert place == (str(tmp_path / "branch.yaml"), 2, 1, "ratio")


def test_place_of_a_list_item() -> None:
    with pytest.raises(InputError) as caught:
        parse(TREE.replace("{size: 2}", "{size: two}"), "tree.yaml", Tree)
    assert str(caught.value) == (
        "tree.yaml:5:6: branch.leaves.1.size: 'two' is text; allowed: an integer"
    )


def test_misspelt_key_comes_before_the_missing_one() -> None:
    with pytest.raises(InputError) as caught:
        parse("brunch: {}\n", "tree.yaml", Tree)
    assert str(caught.value) == (
        "tree.yaml:1:1: brunch: unknown key; allowed: the keys branch; did you mean 'branch'?"
    )


def test_document_errors_have_no_line() -> None:
    with pytest.raises(InputError) as caught:
        from_document({"branch": {"leaves": [{"size": True}]}}, "plan.json", Tree)
    assert str(caught.value) == (
        "plan.json: branch.leaves.0.size: true is not an integer; allowed: an integer"
    )


def test_document_refuses_not_a_number() -> None:
    with pytest.raises(InputError, match="ratio"):
        from_document({"branch": {"leaves": [], "ratio": float("nan")}}, "plan.json", Tree)


# ---------------------------------------------------------------- overrides


def test_overrides_reach_into_references_and_lists(tmp_path: Path) -> None:
    (tmp_path / "branch.yaml").write_text("leaves: [{size: 1}, {size: 2}]\n")
    (tmp_path / "tree.yaml").write_text("branch: branch.yaml\n")
    changes = {"branch.leaves.1.size": "7", "branch.ratio": "1e3"}
    tree = load(tmp_path / "tree.yaml", "model", Tree, changes)
    assert tree.branch == Branch(leaves=(Leaf(size=1), Leaf(size=7)), ratio=1000.0)


def test_override_may_name_the_reference_and_a_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("leaves: []\nratio: 2.0\n")
    (tmp_path / "tree.yaml").write_text("branch: missing.yaml\n")
    changes = {"branch": "./a.yaml", "branch.ratio": "3.0"}
    assert load(tmp_path / "tree.yaml", "model", Tree, changes).branch.ratio == 3.0


def test_override_may_be_a_list() -> None:
    assert values._changes({"a.b": "[1, 2]"})[("a", "b")].plain() == (1, 2)


@given(st.text(alphabet="ab:-[]{},&*!|>#'\"%@ \n\t?0.e<=~", max_size=40))
def test_any_yaml_like_text_is_a_tree_or_an_input_error(text: str) -> None:
    try:
        parse(text, "x", Tree)
    except InputError as error:
        assert error.path
        assert "\n" not in str(error)


def test_json_schema_allows_names() -> None:
    schema = Tree.model_json_schema()
    assert schema["properties"]["branch"]["anyOf"][0]["type"] == "string"
