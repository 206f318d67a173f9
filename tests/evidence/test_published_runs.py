"""Reading rows: what is kept, and what wrong input says."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.evidence.published_runs import PublishedRun, read_runs

Line = Callable[..., str]
MakeRun = Callable[..., PublishedRun]


def write(folder: Path, *lines: str) -> Path:
    path = folder / "runs.jsonl"
    path.write_text("\n".join(lines), "utf-8")
    return path


def test_rows_in_order_blank_lines_passed_over(tmp_path: Path, line: Line) -> None:
    path = write(tmp_path, line(), "", line(id="made-2"), "")
    assert [run.id for run in read_runs(path)] == ["made-1", "made-2"]


def test_only_newlines_end_rows(tmp_path: Path, line: Line) -> None:
    path = write(tmp_path, line(model_name="a b").replace("a b", "a\u2028b"))
    assert read_runs(path)[0].model_name == "a\u2028b"


def test_unknown_fields_are_let_pass(tmp_path: Path, line: Line) -> None:
    assert read_runs(write(tmp_path, line(further={"field": 1})))[0].id == "made-1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"id": ', "runs.jsonl:2:8: id: not readable as JSON: the text ends"),
        ("[1]", "runs.jsonl:2: is not a JSON object"),
        ("[" * 100_000, "runs.jsonl:2: not readable as JSON: it is nested too deeply"),
        (
            '{"id": ' + "1" * 5000 + "}",
            "runs.jsonl:2:8: id: 1111111111111111111111111111111111111111 is not a finite",
        ),
        ("{}", "runs.jsonl:2: id: this key is missing"),
    ],
)
def test_broken_lines_name_file_and_line(tmp_path: Path, line: Line, text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_runs(write(tmp_path, line(), text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"n_gpus": "16"}, "n_gpus"),
        ({"n_gpus": 0}, "n_gpus"),
        ({"n_gpus": 10**15}, "n_gpus"),
        ({"hidden": 10**30}, "hidden"),
        ({"tp": -2}, "tp"),
        ({"tp": 2.5}, "tp"),
        ({"tp": True}, "tp"),
        ({"nic_gbps_per_gpu": float("nan")}, "nic_gbps_per_gpu"),
        ({"nic_gbps_per_gpu": float("inf")}, "nic_gbps_per_gpu"),
        ({"zero_stage": 4}, "zero_stage"),
        ({"sp": 1}, "sp"),
        ({"overlap": "dp"}, "overlap"),
        ({"measured": {"oom": "no"}}, "measured.oom"),
        ({"std": {"iter_time_s": -1.0}}, "std.iter_time_s"),
    ],
)
def test_wrong_values_name_the_field(
    tmp_path: Path, line: Line, changes: dict[str, object], key: str
) -> None:
    with pytest.raises(InputError) as caught:
        read_runs(write(tmp_path, line(), line(), line(**changes)))
    assert (caught.value.line, caught.value.key) == (3, key)
    assert caught.value.allowed
    assert re.search(rf"runs\.jsonl:3(:\d+)?: {re.escape(key)}: ", str(caught.value))


def test_a_missing_field_is_named(tmp_path: Path, line: Line) -> None:
    with pytest.raises(InputError, match=r"runs\.jsonl:1: framework: this key is missing"):
        read_runs(write(tmp_path, line().replace('"framework"', '"frame_work"')))


def test_unreadable_and_empty_files(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(InputError, match="cannot be read"):
            read_runs(path)
    with pytest.raises(InputError, match="has no rows"):
        read_runs(write(tmp_path, ""))
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot be read"):
        read_runs(tmp_path / "bytes.jsonl")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("owner/name docs/a.md@0123 (release 2)", "owner/name"),
        ("owner/name.jl", "owner/name.jl"),
        ("Doe et al. 2023, On Layouts (arXiv 2311.05610); x/y data/z.xlsx", "arXiv 2311.05610"),
        ("Doe et al. 2023 (arXiv:2311.05610)", "arXiv 2311.05610"),
        ("A blog post, 2024; table 2", "A blog post"),
    ],
)
def test_publication_names(make_run: MakeRun, source: str, name: str) -> None:
    assert make_run(source=source).publication == name
