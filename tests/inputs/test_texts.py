"""Files into text and JSON into values: what is refused, and that the rest is what it is."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.inputs.text import MOST_DEPTH, file_text, json_value, whole

ALLOWED = "a file of this test"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20,
)  # fmt: skip


@given(VALUES)
def test_json_is_what_it_was(value):
    assert json_value(json.dumps(value), "x.json", ALLOWED) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1, "a": 1}', "a: is not JSON that can be read: the key is given twice"),
        ('{"a": {"b": NaN}}', "b: is not JSON that can be read: NaN is not a finite number"),
        ('{"a": 1e400}', "Infinity is not a finite number"),
        ("[1e400]", "Infinity is not a finite number"),
        ('{"a": ', "x.json:1:7: is not JSON: Expecting value"),
        ("[" * 90_000, "is not JSON that can be read"),
        ("[" * 101 + "]" * 101, f"is nested more than {MOST_DEPTH} deep"),
        ("9" * 5000, "is not JSON that can be read"),
    ],
)
def test_json_that_is_refused(text, says):
    with pytest.raises(InputError) as error:
        json_value(text, "x.json", ALLOWED)
    assert says in str(error.value)


def test_a_line_of_many_keeps_its_number():
    with pytest.raises(InputError, match=r"x\.jsonl:7:2: is not JSON"):
        json_value("{broken", "x.jsonl", ALLOWED, 7)


def test_text_loses_its_mark_and_nothing_else(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfa\r\nb\n")
    assert file_text(tmp_path / "a", ALLOWED) == "a\r\nb\n"


def test_files_of_too_many_bytes_are_refused(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"12345")
    assert file_text(tmp_path / "a", ALLOWED, most_bytes=5) == "12345"
    with pytest.raises(InputError, match="more than 4 bytes long"):
        file_text(tmp_path / "a", ALLOWED, most_bytes=4)


def test_bytes_that_are_no_text(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"ok\nno\xff")
    with pytest.raises(InputError, match="a:2:3: cannot be read: the byte 0xff is not UTF-8"):
        file_text(tmp_path / "a", ALLOWED)
    assert file_text(tmp_path / "a", ALLOWED, lenient=True) == "ok\nno\ufffd"


def test_pipes_are_read_where_they_are_meant(tmp_path: Path):
    ours, theirs = os.pipe()
    os.write(theirs, b"--bf16")
    os.close(theirs)
    path = f"/dev/fd/{ours}"
    with pytest.raises(InputError, match="is a pipe or device"):
        file_text(path, ALLOWED)
    assert file_text(path, ALLOWED, pipes=True) == "--bf16"
    os.close(ours)


@pytest.mark.parametrize("text", ["", "+1", "-1", "1.0", "1_0", "٣", "²", " 1", "9" * 19])
def test_what_is_no_whole_number(text):
    assert whole(text) is None


def test_whole_numbers():
    assert [whole(t) for t in ("0", "007", "9" * 18)] == [0, 7, 10**18 - 1]
