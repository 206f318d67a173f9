"""A user's two or three runs: read in every form, tuned to, refused where they are nonsense."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.cli import main
from planner.errors import InputError
from planner.evidence import own_runs_fit as own_fit
from planner.evidence.own_runs import is_own, read_own_runs
from planner.evidence.own_runs_fit import OwnRun, tune_profile
from planner.evidence.profile_fit import (
    COEFFICIENTS,
    coefficients_of,
    step_seconds,
    with_coefficients,
)
from planner.inputs.values import load
from planner.problem.software import Software

SCENARIO = "llama3-8b-h100x8"
LAYOUTS = ("tp=2,mbs=1", "tp=4,mbs=1", "tp=8,mbs=2,recompute=full")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[OwnRun]:
    """Three runs, measured as predicted."""
    path = tmp_path_factory.mktemp("runs") / "runs.yaml"
    lines = [
        f'  - {{scenario: {SCENARIO}, layout: "{text}", step_seconds: 10}}' for text in LAYOUTS
    ]
    path.write_text("runs:\n" + "\n".join(lines), "utf-8")
    return [replace(run, measured_seconds=run.step_seconds) for run in read_own_runs(path)]


def measured(runs: list[OwnRun], values: dict[str, float], error: float = 0.0) -> list[OwnRun]:
    """The runs, measured as the model says with other numbers, times 1 + error."""
    software = runs[0].scenario.software
    other = with_coefficients(software, coefficients_of(software) | values, "truth")
    return [replace(r, measured_seconds=step_seconds(r, other) * (1 + error)) for r in runs]


def cli(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


# ---------------------------------------------------------------- reading


def test_every_form_says_the_same(tmp_path: Path, runs: list[OwnRun]) -> None:
    rows = [(text, 10.0 + i) for i, text in enumerate(LAYOUTS)]
    (tmp_path / "a.yaml").write_text(
        json.dumps({"runs": [{"scenario": SCENARIO, "layout": t, "step_seconds": s}
                             for t, s in rows]}), "utf-8")  # fmt: skip
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"scenario": SCENARIO, "layout": t, "step_seconds": s}) + "\n"
                for t, s in rows), "utf-8")  # fmt: skip
    (tmp_path / "a.csv").write_text(
        "scenario,layout,step_seconds\n"
        + "".join(f'{SCENARIO},"{t}",{s}\n' for t, s in rows), "utf-8")  # fmt: skip
    (tmp_path / "b.csv").write_text(
        "scenario,tp,mbs,recompute,step_seconds\n"
        f"{SCENARIO},2,1,,10\n{SCENARIO},4,1,,11\n{SCENARIO},8,2,full,12\n", "utf-8")  # fmt: skip
    read = [read_own_runs(tmp_path / name) for name in ("a.yaml", "a.jsonl", "a.csv", "b.csv")]
    for found in read:
        said = [(r.scenario, r.layout, r.measured_seconds, r.step_seconds) for r in found]
        assert said == [
            (r.scenario, r.layout, 10.0 + i, r.step_seconds) for i, r in enumerate(runs)
        ]


def test_keys_of_the_scenario_can_be_set(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps({"scenario": SCENARIO, "step_seconds": 5, "layout": "tp=2",
                                "set": {"training.global_batch_size": 64}}), "utf-8")  # fmt: skip
    assert read_own_runs(path)[0].scenario.training.global_batch_size == 64


def test_scenarios_are_sought_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    monkeypatch.chdir(tmp_path)
    (inside / "mine.yaml").write_text(
        "{model: llama3-8b, topology: dgx-h100, num_accelerators: 8, training: {sequence_length: "
        "4096, global_batch_size: 64, precision: bf16, optimizer: adam}}", "utf-8")  # fmt: skip
    (inside / "runs.csv").write_text("scenario,step_seconds,tp\nmine.yaml,3,2\n", "utf-8")
    assert read_own_runs("inside/runs.csv")[0].scenario.num_accelerators == 8


def test_the_prediction_is_that_of_evaluate(runs: list[OwnRun]) -> None:
    for run, text in zip(runs, LAYOUTS, strict=True):
        plan = api.evaluate(api.load_scenario(SCENARIO), text)
        assert run.step_seconds == pytest.approx(plan.step_seconds, rel=1e-9)
        assert own_fit.OwnRun.measured_mfu.fget(run) == pytest.approx(plan.mfu, rel=1e-9)


def test_two_published_rows_are_ones_own_and_many_are_not(tmp_path: Path) -> None:
    rows = Path(api.files.data_root() / api.PUBLISHED_RUNS).read_text("utf-8").splitlines()
    chosen = [row for row in rows if "narayanan" in row or "2104.04473" in row][:2]
    (tmp_path / "two.jsonl").write_text("\n".join(chosen), "utf-8")
    assert is_own([tmp_path / "two.jsonl"])
    assert not is_own([api.PUBLISHED_RUNS])
    assert len(read_own_runs(tmp_path / "two.jsonl")) == 2


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"layout": "tp=3"}, "run 1"),
        ({"layout": "tp=16"}, "cannot be costed"),
        ({"layout": "zero_stag=1"}, "did you mean"),
        ({"layout": "tp"}, "is not key=value"),
        ({"scenario": "llama3-8b-h100x9"}, "did you mean 'llama3-8b-h100x8'"),
        ({"scenario": "gone.yaml"}, "no such file"),
        ({"set": {"training.global_batch": 8}}, "global_batch_size"),
        ({"step_seconds": -1}, "step_seconds: -1 is negative"),
        ({"step_seconds": "10"}, "'10' is text"),
        ({"step_seconds": 1e400}, "step_seconds"),
        ({"step_second": 10}, "did you mean 'step_seconds'"),
        ({"name": 5}, "name"),
    ],
)
def test_wrong_rows_name_file_and_line(tmp_path: Path, line: dict[str, object], says: str) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(
        json.dumps({"scenario": SCENARIO, "layout": "tp=2", "step_seconds": 10} | line), "utf-8"
    )
    with pytest.raises(InputError) as error:
        read_own_runs(path)
    assert says in str(error.value) and "runs.jsonl:1:" in str(error.value)


# ---------------------------------------------------------------- fitting


def test_what_made_them_slow_is_found_in_part(runs: list[OwnRun]) -> None:
    """Numbers go towards the truth and not beyond; the error falls."""
    truth = {"memory_bound_multiplier": 1.9, "tp_overlap_fraction": 0.0}
    found = tune_profile(measured(runs, truth))
    assert found.fit.after.mape_fraction < 0.5 * found.fit.before.mape_fraction
    before, after = found.fit.moved["memory_bound_multiplier"]
    assert before < after < 2.0
    for row, seconds in zip(found.runs, found.after_seconds, strict=True):
        assert abs(seconds / row.measured_seconds - 1) < abs(
            row.step_seconds / row.measured_seconds - 1
        )


@settings(max_examples=6, deadline=None)
@given(error=st.floats(-0.35, 3.0), count=st.integers(2, 3))
def test_no_number_leaves_its_bounds(runs: list[OwnRun], error: float, count: int) -> None:
    """However far off two rows are; and what stands at an end is said."""
    try:
        found = tune_profile(measured(runs[:count], {}, error))
    except InputError as refused:
        assert "explains these runs" in str(refused) or "MFU" in str(refused)
        return
    scales = {c.name: c.scale for c in COEFFICIENTS}
    for name, (before, after) in found.fit.moved.items():
        least, most = found.bounds[name]
        assert least - 1e-9 <= after <= most + 1e-9
        assert abs(after - before) <= own_fit.REACH_SCALES * scales[name] * 1.001
        if after >= most and after != before:
            assert name in found.at_bounds
    assert found.fit.after.mape_fraction < found.fit.before.mape_fraction


def test_far_rows_drive_numbers_to_their_ends_and_that_is_said(runs: list[OwnRun]) -> None:
    found = tune_profile(measured(runs, {}, 1.0))
    assert found.at_bounds


def test_runs_as_predicted_have_nothing_to_tune(runs: list[OwnRun]) -> None:
    with pytest.raises(InputError, match="explains these runs better than its own"):
        tune_profile(runs)


def test_one_run_twice_is_one(runs: list[OwnRun]) -> None:
    for rows in ([], runs[:1], [runs[0], replace(runs[0], measured_seconds=11.0)]):
        with pytest.raises(InputError, match="run"):
            tune_profile(rows)


def test_faster_than_the_hardware(runs: list[OwnRun]) -> None:
    fast = replace(runs[1], measured_seconds=runs[1].measured_seconds / 3)
    with pytest.raises(InputError, match=r"'run 2' has an MFU of 1\d\d%"):
        tune_profile([runs[0], fast])


def test_absurdly_slow(runs: list[OwnRun]) -> None:
    with pytest.raises(InputError, match="no coefficient explains that"):
        tune_profile([runs[0], replace(runs[1], measured_seconds=1e6)])


def test_two_profiles_are_refused(runs: list[OwnRun]) -> None:
    other = load("torchtitan", "software", Software)
    scenario = runs[1].scenario.model_copy(update={"software": other})
    with pytest.raises(InputError, match="ran on software torchtitan"):
        tune_profile([runs[0], replace(runs[1], scenario=scenario)])


# ---------------------------------------------------------------- the command


def test_the_written_profile_predicts_what_was_said(tmp_path: Path, runs: list[OwnRun]) -> None:
    slow = measured(runs, {"memory_bound_multiplier": 1.9})
    path, out = tmp_path / "runs.csv", tmp_path / "mine.yaml"
    path.write_text(
        "scenario,layout,step_seconds\n"
        + "".join(f'{SCENARIO},"{t}",{r.measured_seconds}\n'
                  for t, r in zip(LAYOUTS, slow, strict=True)), "utf-8")  # fmt: skip
    done = cli("calibrate", "runs", path, "--out", out, "--json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    again = api.evaluate(api.load_scenario(SCENARIO, {"software": str(out)}), LAYOUTS[0])
    assert again.step_seconds == pytest.approx(document["rows"][0]["after_seconds"], rel=1e-4)
    assert again.inputs["software"]["name"] == "mine"
    text = cli("calibrate", "runs", path, "--out", out).stdout
    for said in ("memory bound multiplier", "within", "error before", "mean error"):
        assert said in text
    # a profile of one's own can be tuned further, though no file of that name ships
    further = tmp_path / "further.yaml"
    rows = [
        {"scenario": SCENARIO, "layout": t, "step_seconds": r.measured_seconds * 1.2,
         "set": {"software": str(out)}}
        for t, r in zip(LAYOUTS, slow, strict=True)
    ]  # fmt: skip
    (tmp_path / "more.yaml").write_text(json.dumps({"runs": rows}), "utf-8")
    done = cli("calibrate", "runs", tmp_path / "more.yaml", "--out", further)
    assert done.exit_code == 0, done.stderr
    assert load(further, "software", Software).name == "further"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("scenario,step_seconds,tp\nllama3-8b-h100x8,10,2\n", "1 run of its own kind"),
        ("scenario,step_seconds,tp\nllama3-8b-h100x8,10,x\n", "runs.csv:2: run 1: tp"),
        ("scenario,step_seconds,tp\nllama3-8b-h100x8,ten,2\n", "'ten' is text"),
        ("scenario,step_seconds,tp\nllama3-8b-h100x8,,2\n", "step_seconds: this key is missing"),
        ("scenario,step_seconds,layout,tp\nllama3-8b-h100x8,9,tp=2,4\n", "a layout and layout"),
        ("scenario,seconds,tp\nllama3-8b-h100x8,10,2\n", "did you mean 'step_seconds'"),
    ],
)  # fmt: skip
def test_nonsense_is_exit_2_and_writes_nothing(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "runs.csv").write_text(text, "utf-8")
    done = cli("calibrate", "runs", tmp_path / "runs.csv", "--out", tmp_path / "mine.yaml")
    assert done.exit_code == 2 and says in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "mine.yaml").exists()
