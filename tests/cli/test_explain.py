"""`planner explain`: exit codes, one JSON document, one-paragraph errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from planner.cli import main
from tests.scenarios import shipped_plan

SMALL = "llama3-8b-h100x8"
FITS = "tp=2,mbs=1,recompute=full"


def run(*args: Any) -> Result:
    return CliRunner().invoke(main, ["explain", *map(str, args)])


def document(*args: Any) -> dict[str, Any]:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def fails(result: Result) -> str:
    """The message of a run on bad input: one paragraph on stderr, nothing on stdout."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("planner: error: ") and result.stderr.count("\n") == 1
    return result.stderr


def test_the_best_plan_is_explained() -> None:
    result = run(SMALL)
    assert result.exit_code == 0, result.stderr
    assert "What the step waits for" in result.stdout and "\x1b" not in result.stdout
    best = shipped_plan(SMALL)
    assert document(SMALL)["plan"]["layout"] == json.loads(json.dumps(best.to_document()["layout"]))


@pytest.mark.parametrize("width", [80, 120])
def test_a_pipe_takes_its_width_from_columns(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for args in ([SMALL, "--layout", FITS], [SMALL, "--layout", FITS, "--measured", "mfu=0.2"]):
        longest = max(map(len, run(*args).stdout.splitlines()))
        assert width - 30 < longest <= width


def test_a_layout_is_explained_and_measured() -> None:
    found = document(SMALL, "--layout", FITS)
    assert found["plan"]["layout"]["recompute"] == "full"
    gains = {action["id"]: action["gain_seconds"] for action in found["actions"]["move"]}
    assert gains["recompute:none"] > 0
    found = document(SMALL, "--layout", FITS, "--measured", "mfu=0.31,step_seconds=22")
    assert found["measured"] == {"mfu": 0.31, "step_seconds": 22.0}
    assert found["verdict"] == "below" and found["warnings"] == []


def test_scenario_keys_are_overridden() -> None:
    found = document(SMALL, "--layout", FITS, "--set", "training.precision=fp8")
    assert found["plan"]["mfu_denominator"]["precision"] == "fp8"


def test_what_does_not_fit_exits_1_and_still_answers() -> None:
    result = run(SMALL, "--layout", "tp=1,mbs=8")
    assert result.exit_code == 1
    assert "What the step waits for" in result.stdout
    result = run("llama3-70b-h100x1024", "--set", "num_accelerators=8")
    assert result.exit_code == 1 and "No layout fits." in result.stdout
    result = run("llama3-70b-h100x1024", "--set", "num_accelerators=8", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["plan"]["status"] == "infeasible"


def test_a_measured_run_is_answered_even_if_it_should_not_have_fitted() -> None:
    assert document(SMALL, "--layout", "tp=1,mbs=8", "--measured", "mfu=0.4")["warnings"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([SMALL, "--measured", "mfu=31"], "did you mean 'mfu=0.31'"),
        ([SMALL, "--measured", "mfuu=0.3"], "did you mean 'mfu'"),
        ([SMALL, "--measured", "mfu=-0.3"], "negative"),
        ([SMALL, "--measured", "mfu"], "key=value"),
        ([SMALL, "--measured", ""], "nothing is measured"),
        ([SMALL, "--measured", "tp=8"], "--layout tp=8"),
        ([SMALL, "--layout", "tpp=2"], "did you mean 'tp'"),
        ([SMALL, "--layout", "tp=3"], "rule"),
        (["llama3-8b-h100x9"], "did you mean 'llama3-8b-h100x8'"),
        ([], "SCENARIO"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_2(args: list[str], said: str) -> None:
    assert said in fails(run(*args))
