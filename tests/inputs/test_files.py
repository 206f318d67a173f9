"""Finding, reading and validating files, on small classes of our own."""

import json
from pathlib import Path
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError, UnknownNameError
from planner.inputs import files
from planner.inputs.documents import from_plain, read_text, show
from planner.inputs.files import (
    Reference,
    Strict,
    data_root,
    from_document,
    load,
    names,
    parse,
    resolve,
)


class Leaf(Strict):
    size: int
    label: str = "none"


class Branch(Strict):
    leaves: tuple[Leaf, ...]
    ratio: float = 1.0


class Tree(Strict):
    branch: Annotated[Branch, Reference("model")]


# ---------------------------------------------------------------- finding


def test_data_root_holds_the_shipped_folders() -> None:
    assert (data_root() / "topologies" / "accelerators").is_dir()


def test_names_are_sorted_stems() -> None:
    assert names("accelerator") == sorted(names("accelerator"))
    assert "h100-sxm-80gb" in names("accelerator")
    assert "h100-sxm-80gb" not in names("topology")


def test_name_resolves_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve("topology", "dgx-h100").is_file()


@pytest.mark.parametrize("text", ["./a.yaml", "a.yaml", "sub/../a.yaml"])
def test_path_is_beside_the_referring_file_first(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "sub").mkdir()
    for folder in (tmp_path, tmp_path / "here"):
        (folder / "a.yaml").touch()
    monkeypatch.chdir(tmp_path)
    beside = resolve("model", text, tmp_path / "here")
    assert beside.resolve() == tmp_path / "here" / "a.yaml"
    (tmp_path / "here" / "a.yaml").unlink()
    assert resolve("model", text, tmp_path / "here").resolve() == tmp_path / "a.yaml"


def test_unknown_name_has_near_match_and_all_names() -> None:
    with pytest.raises(UnknownNameError) as caught:
        resolve("topology", "dgx-h10")
    assert caught.value.nearest in ("dgx-h100", "dgx-h200")
    assert "gb200-nvl72" in str(caught.value)


@pytest.mark.parametrize("text", ["", "..", "x\0y", "./x\0y", "a/" + "b" * 5000])
def test_odd_names(text: str) -> None:
    with pytest.raises(InputError):
        resolve("model", text)


# ---------------------------------------------------------------- values


def test_strict_is_frozen_and_closed() -> None:
    leaf = Leaf(size=1)
    with pytest.raises(ValueError, match="frozen"):
        leaf.size = 2  # type: ignore[misc]
    with pytest.raises(ValueError, match="extra"):
        Leaf(size=1, sise=2)  # type: ignore[call-arg]


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
        "plan.json: branch.leaves.0.size: true does not fit here; allowed: an integer"
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
    assert files._changes({"a.b": "[1, 2]"})[("a", "b")].plain() == (1, 2)


# ---------------------------------------------------------------- YAML text


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
    plain = read_text(text, "x").plain()
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
    assert read_text(json.dumps(value), "x").plain() == value
    assert from_plain(value).plain() == value


@given(st.text(max_size=60))
def test_any_text_is_a_tree_or_an_input_error(text: str) -> None:
    try:
        read_text(text, "x")
    except InputError as error:
        assert error.path == "x"
        assert "\n" not in str(error)


@given(st.text(alphabet="ab:-[]{},&*!|>#'\"%@ \n\t?0.e<=~", max_size=40))
def test_any_yaml_like_text_is_a_tree_or_an_input_error(text: str) -> None:
    try:
        parse(text, "x", Tree)
    except InputError as error:
        assert error.path
        assert "\n" not in str(error)


def test_show_is_short() -> None:
    values: tuple[object, ...] = (None, True, 2.0, (1,), {})
    assert show("x" * 100) == "'" + "x" * 56 + "..."
    assert [show(value) for value in values] == [
        "null",
        "true",
        "2.0",
        "a list",
        "a mapping",
    ]


def test_json_schema_allows_names() -> None:
    schema = Tree.model_json_schema()
    assert schema["properties"]["branch"]["anyOf"][0]["type"] == "string"
