"""Text out of files and numbers out of text: what is refused."""

import os
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.inputs.text import file_text, natural_number

ALLOWED = "a file of this test"


def test_text_loses_its_mark_and_nothing_else(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfa\r\nb\n")
    assert file_text(tmp_path / "a", ALLOWED) == "a\r\nb\n"


def test_files_of_too_many_bytes_are_refused(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"12345")
    assert file_text(tmp_path / "a", ALLOWED, max_bytes=5) == "12345"
    with pytest.raises(InputError, match="more than 4 bytes long"):
        file_text(tmp_path / "a", ALLOWED, max_bytes=4)


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
    assert natural_number(text) is None


def test_whole_numbers():
    assert [natural_number(t) for t in ("0", "007", "9" * 18)] == [0, 7, 10**18 - 1]
