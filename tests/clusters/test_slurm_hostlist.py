"""Host lists: what Slurm expands them to (`scontrol show hostnames`)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.clusters.slurm_hostlist import compressed, expand
from planner.errors import InputError, Place


def names(text: str) -> list[str]:
    return expand(text, Place("topology.conf", 3, key="Nodes"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("node[11-12,20]", ["node11", "node12", "node20"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("a,b[1-2]", ["a", "b1", "b2"]),
        ("r[1-2]n[1-2]x", ["r1n1x", "r1n2x", "r2n1x", "r2n2x"]),
        ("1101", ["1101"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
    ],
)
def test_lists_are_expanded(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n[1-2", "not closed"), ("n1-2]", "do not pair"), ("n[[1]]", "do not pair"),
        ("n[2-1]", "backwards"), ("n[a-b]", "not a range"), ("n[]", "not a range"),
        ("a,,b", "empty"), ("a,a", "twice"), ("n[1-999999999]", "more than"),
        ("n[1-900][1-900]", "more than"), ("a b", "blank"),
    ],
)  # fmt: skip
def test_what_is_no_list_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        names(text)
    assert (error.value.path, error.value.line) == ("topology.conf", 3)


@given(st.sets(st.integers(0, 400), min_size=1), st.integers(1, 4))
def test_every_number_comes_back(numbers: set[int], width: int) -> None:
    """Runs written as Slurm writes them expand to the numbers they were made of."""
    ordered, runs = sorted(numbers), []
    for number in ordered:
        if runs and runs[-1][1] == number - 1 and len(str(number)) <= width:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ",".join(f"{a:0{width}d}-{b:0{width}d}" if a < b else f"{a:0{width}d}" for a, b in runs)
    assert names(f"n[{text}]") == [f"n{n:0{width}d}" for n in ordered]


@given(st.sets(st.from_regex(r"[a-z]{1,3}[0-9]{0,4}", fullmatch=True), min_size=1))
def test_compressed_names_expand_to_themselves(given_names: set[str]) -> None:
    assert sorted(names(compressed(sorted(given_names)))) == sorted(given_names)


def test_runs_are_written_as_ranges() -> None:
    assert compressed(["n08", "n09", "n10", "n12", "x"]) == "n[08-10,12],x"
