"""Messages, exit codes and copies of errors."""

import copy
import pickle

import pytest

from planner.errors import (
    ExportError,
    IllegalLayoutError,
    InputError,
    Place,
    PlannerError,
    UnitError,
    UnknownNameError,
    UnsupportedError,
    nearest_of,
    one_paragraph,
)


def test_full_message() -> None:
    error = InputError(
        "-4 is negative",
        path="scenarios/x.yaml",
        line=7,
        column=13,
        key="training.sequence_length",
        value=-4,
        allowed="an integer >= 1",
    )
    assert str(error) == (
        "scenarios/x.yaml:7:13: training.sequence_length: -4 is negative; allowed: an integer >= 1"
    )


def test_nearest_choices_are_quoted() -> None:
    assert str(InputError("no", nearest="dgx-h100")) == "no; did you mean 'dgx-h100'?"
    two = InputError("no", nearest="GB/s or Gbit/s")
    assert str(two) == "no; did you mean 'GB/s' or 'Gbit/s'?"


def test_bare_message_has_no_place() -> None:
    assert str(InputError("wrong")) == "wrong"
    assert str(InputError("wrong", path="x.yaml")) == "x.yaml: wrong"


def test_message_is_one_paragraph() -> None:
    assert str(InputError("first\n  second\t third")) == "first second third"
    assert one_paragraph(" a\n\nb ") == "a b"


@pytest.mark.parametrize("kind", [InputError, UnitError, UnknownNameError])
def test_exit_code_of_input(kind: type[InputError]) -> None:
    assert issubclass(kind, PlannerError)
    assert issubclass(kind, ValueError)
    assert kind("x").exit_code == 2


def test_other_exit_codes() -> None:
    assert IllegalLayoutError("r", "s", 1, "m").exit_code == 2
    assert UnsupportedError("x").exit_code == 2
    assert ExportError("x").exit_code == 1


def test_illegal_layout_cites_its_rule() -> None:
    error = IllegalLayoutError(
        "heads-divide", "megatron/core/x.py:1", 7, "tp=7 does not divide 64 heads", ("tp=4", "tp=8")
    )
    assert (error.rule, error.source, error.value) == ("heads-divide", "megatron/core/x.py:1", 7)
    assert error.nearest == ("tp=4", "tp=8")
    assert str(error) == (
        "7: tp=7 does not divide 64 heads (rule heads-divide, megatron/core/x.py:1); "
        "nearest legal: tp=4, tp=8"
    )


@pytest.mark.parametrize(
    "error",
    [
        InputError("wrong", path="x", line=1, column=2, key="a.b", value=3, allowed="4"),
        UnitError("wrong", nearest="GB"),
        IllegalLayoutError("r", "s", 1, "m", ("n",)),
    ],
)
def test_errors_survive_processes(error: PlannerError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert vars(other) == vars(error)


def test_located_keeps_the_kind_and_the_inner_file() -> None:
    inner = UnknownNameError("no such file", path="model.yaml", nearest="models.yaml")
    outer = inner.located(Place("scenario.yaml", 3, 1, "model"))
    assert type(outer) is UnknownNameError
    assert str(outer) == (
        "scenario.yaml:3:1: model: model.yaml: no such file; did you mean 'models.yaml'?"
    )


def test_places_make_errors_and_name_their_line() -> None:
    place = Place("a.yaml", 3, 7, "b.c")
    error = place.error("is wrong", value=5, allowed="4", nearest="4")
    assert vars(error) == vars(
        InputError("is wrong", path="a.yaml", line=3, column=7, key="b.c", value=5, allowed="4",
                   nearest="4")
    )  # fmt: skip
    assert [str(place), str(Place("a.yaml")), str(Place())] == ["a.yaml:3", "a.yaml", ""]


def test_nearest_ignores_letter_case() -> None:
    assert nearest_of("DGX-H10", ["dgx-h100", "mi300x"]) == "dgx-h100"
    assert nearest_of("zebra", ["dgx-h100", "mi300x"]) is None
    assert nearest_of("x", []) is None
