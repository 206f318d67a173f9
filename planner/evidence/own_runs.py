"""A user's measured runs, read from what is easiest to write.

YAML (a list under `runs`), JSON lines or CSV, each run with

    scenario: llama3-8b-h100x8            a shipped name or a file
    layout: tp=2,mbs=1                    as of `planner evaluate --layout`
    step_seconds: 12.4                    of a whole step, all micro-batches
    set: {training.global_batch_size: 64} scenario keys that differ (not in CSV)
    name: first                           for messages (optional)

A CSV file may have layout keys for columns instead of `layout`. Rows of the published form are read
as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt, MinLen
from pydantic import Field, ValidationError

from planner.cost import step
from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError, InputError, Place, PlannerError
from planner.evidence.own_runs_fit import OwnRun
from planner.evidence.profile_fit import MIN_PUBLISHED_ROWS
from planner.evidence.published_runs import PublishedRun, UnscorableError, runs_of
from planner.evidence.row_jobs import fill_of, job_of
from planner.evidence.row_predictions import predict, usual_splits
from planner.inputs.complaints import input_error
from planner.inputs.csv_rows import rows_of
from planner.inputs.documents import from_plain
from planner.inputs.files import here_or_shipped, resolve
from planner.inputs.json_text import json_value
from planner.inputs.text import file_text
from planner.inputs.values import Strict, parse
from planner.layouts.keys import KEYS
from planner.problem.scenario import load_scenario
from planner.search.space.given import given_layout, parse_layout

COLUMNS = ("scenario", "step_seconds", "layout", "name", *KEYS)
ALLOWED = "runs with scenario, layout and step_seconds, as YAML, JSON lines or CSV"


class Given(Strict):
    """One run as its file says it."""

    scenario: Annotated[str, MinLen(1)]
    step_seconds: Annotated[float, Gt(0)]
    layout: str = ""
    name: str | None = None
    overrides: dict[str, Any] = Field(default_factory=dict, alias="set")


class GivenRuns(Strict):
    """The YAML form."""

    runs: Annotated[tuple[Given, ...], MinLen(1)]


def is_own(paths: Sequence[str | Path]) -> bool:
    """Whether the files hold a user's runs: of the form above, or of the published rows' form but
    fewer than a fit of those takes."""
    texts = [_text(path) for path in paths]
    plain = [_names_scenarios(text) for text in texts]
    rows = sum(1 for text in texts for line in text.splitlines() if line.strip())
    return bool(plain) and (any(plain) or rows < MIN_PUBLISHED_ROWS)


def read_own_runs(path: str | Path) -> list[OwnRun]:
    """The runs of a file, each with its prediction in the framework's own rank order.

    Raises:
        InputError: it cannot be read, or a run of it cannot be costed, with its line.
    """
    text = _text(path)
    if not _names_scenarios(text):
        return [_of_published_row(run, str(path)) for run in runs_of(text, str(path))]
    return [
        _costed(given, path, line, number)
        for number, (given, line) in enumerate(_given(path, text), 1)
    ]


def _text(path: str | Path) -> str:
    return file_text(here_or_shipped(path), ALLOWED, shown=str(path))


def _names_scenarios(text: str) -> bool:
    """Whether runs are given by scenario: anything but JSON lines whose first line names none."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return not first.lstrip().startswith("{") or '"scenario"' in first


# ---------------------------------------------------------------- three forms of a run


def _given(path: str | Path, text: str) -> list[tuple[Given, int | None]]:
    """The runs as given, with their lines where the form has one line a run."""
    if Path(path).suffix.lower() == ".csv":
        rows = rows_of(text, str(path), COLUMNS, "column", ALLOWED)
        return [(_of_cells(cells, str(path), line), line) for line, cells in rows]
    # YAML may be written as JSON too: then it is one mapping with `runs`
    if text.lstrip().startswith("{") and not text.lstrip().startswith('{"runs"'):
        lines = [(line, n) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
        return [
            (_checked(json_value(line, str(path), ALLOWED, n), str(path), n), n)
            for line, n in lines
        ]
    return [(given, None) for given in parse(text, str(path), GivenRuns).runs]


def _of_cells(cells: Mapping[str, str], path: str, line: int) -> Given:
    """A run of a CSV file, whose layout is a cell or spread over columns."""
    keys = {key: cells[key] for key in KEYS if key in cells}
    if keys and "layout" in cells:
        raise InputError(
            "a layout and layout keys beside it",
            path=path,
            line=line,
            key=next(iter(keys)),
            allowed="one of the two",
        )
    layout = cells.get("layout") or ",".join(f"{key}={value}" for key, value in keys.items())
    document: dict[str, Any] = {
        key: cells[key] for key in ("scenario", "step_seconds", "name") if key in cells
    }
    seconds = document.get("step_seconds")
    if seconds is not None:
        with suppress(ValueError):  # text stays text and is refused by its form
            # float() reads digits of every script; a file means ASCII ones
            document["step_seconds"] = float(seconds) if seconds.isascii() else seconds
    return _checked({**document, "layout": layout}, path, line)


def _checked(document: Any, path: str, line: int) -> Given:
    if not isinstance(document, dict):
        raise InputError("is no mapping", path=path, line=line, allowed=ALLOWED)
    try:
        return Given.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        problem = input_error(error, from_plain(document), Given)
        raise problem.located(Place(path, line, key=problem.key)) from None


# ---------------------------------------------------------------- predictions


def _costed(given: Given, path: str | Path, line: int | None, number: int) -> OwnRun:
    name = given.name or f"run {number}"
    try:
        file = resolve("scenario", given.scenario, Path(path).parent)
        scenario = load_scenario(file, {k: json.dumps(v) for k, v in given.overrides.items()})
        ctx = CostContext.of(scenario)
        layout = given_layout(ctx, parse_layout(given.layout), "layout")
    except IllegalLayoutError as error:
        raise InputError(
            f"{name} cannot be costed: {error}",
            path=str(path),
            line=line,
            key="layout",
            value=given.layout,
            allowed="a layout that the scenario's software runs",
        ) from None
    except InputError as error:
        key = f"{name}: {error.key or 'scenario'}"
        raise error.located(Place(str(path), line, key=key)) from None
    except PlannerError as error:
        raise InputError(f"{name} cannot be costed: {error}", path=str(path), line=line) from None
    fill = fill_of(scenario.topology.widths, scenario.num_accelerators)
    splits = usual_splits(scenario.software, layout, fill)
    seconds = float(step.evaluate(ctx, layout, splits).total)
    return OwnRun(name, scenario, layout, splits, seconds, given.step_seconds, str(path), line)


def _of_published_row(run: PublishedRun, path: str) -> OwnRun:
    measured = run.std.iter_time_s
    if measured is None:
        raise InputError(f"row '{run.id}' has no step time", path=path, key="std.iter_time_s")
    try:
        prediction = predict(job_of(run))
    except UnscorableError as error:
        raise InputError(f"row '{run.id}' cannot be costed: {error.reason}", path=path) from None
    except PlannerError as error:
        raise InputError(f"row '{run.id}' cannot be costed: {error}", path=path) from None
    return OwnRun(
        name=run.id,
        scenario=prediction.scenario,
        layout=prediction.layout,
        splits=prediction.splits,
        step_seconds=prediction.step_seconds,
        measured_seconds=measured,
        path=path,
    )
