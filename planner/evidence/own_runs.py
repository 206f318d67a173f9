"""A user's own measured runs, read from what is easiest to write, and a profile tuned to them.

YAML (a list under `runs`), JSON lines or CSV, each run with

    scenario: llama3-8b-h100x8            a shipped name or a file
    layout: tp=2,mbs=1                    as of `planner evaluate --layout`
    step_seconds: 12.4                    of a whole step, all micro-batches
    set: {training.global_batch_size: 64} scenario keys that differ (not in CSV)
    name: first                           for messages (optional)

A CSV file may have layout keys for columns instead of `layout`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt, MinLen
from pydantic import Field, ValidationError

from planner.cost import step
from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError, InputError, PlannerError
from planner.evidence.fits.software import LEAST_ROWS as LEAST_PUBLISHED
from planner.evidence.own_runs_fit import OwnCalibration, OwnRun, calibrate_own
from planner.evidence.published_runs import UnscorableError, runs_of
from planner.evidence.row_jobs import fill_of, job_of
from planner.evidence.validate_runs import predict
from planner.inputs.complaints import input_error
from planner.inputs.csv_rows import rows_of
from planner.inputs.documents import from_plain
from planner.inputs.files import Strict, here_or_shipped, parse, resolve
from planner.inputs.text import file_text, json_value
from planner.layouts.rank_orders import order_splits
from planner.problem.scenario import Scenario, load_scenario
from planner.search.space.given import KEYS, given_layout, parse_layout

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


def calibrate_own_runs(paths: Iterable[str | Path]) -> OwnCalibration:
    """A software profile tuned to a user's own runs.

    Raises:
        InputError: a file cannot be read, a run cannot be costed, or `calibrate_own` refuses them.
    """
    return calibrate_own([run for path in paths for run in read_own_runs(path)])


def is_own(paths: Sequence[str | Path]) -> bool:
    """Whether the files hold a user's own runs: of the form above, or of the published rows' but
    fewer than a fit of those takes."""
    texts = [_text(path) for path in paths]
    plain = [_is_plain(text) for text in texts]
    rows = sum(1 for text in texts for line in text.splitlines() if line.strip())
    return bool(plain) and (any(plain) or rows < LEAST_PUBLISHED)


def read_own_runs(path: str | Path) -> list[OwnRun]:
    """The runs of a file, each with its prediction.

    Raises:
        InputError: it cannot be read, or a run of it cannot be costed, with its line.
    """
    text = _text(path)
    if not _is_plain(text):
        return [_of_row(run, str(path)) for run in runs_of(text, str(path))]
    return [
        _costed(given, path, line, number)
        for number, (given, line) in enumerate(_given(path, text), 1)
    ]


def _text(path: str | Path) -> str:
    return file_text(here_or_shipped(path), ALLOWED, shown=str(path))


def _is_plain(text: str) -> bool:
    """Whether runs are given by scenario: no JSON lines, or such whose first names one."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return not first.lstrip().startswith("{") or '"scenario"' in first


def _given(path: str | Path, text: str) -> list[tuple[Given, int | None]]:
    if Path(path).suffix.lower() == ".csv":
        rows = rows_of(text, str(path), COLUMNS, "column", ALLOWED)
        return [(_of_cells(cells, str(path), line), line) for line, cells in rows]
    if text.lstrip().startswith("{") and not text.lstrip().startswith('{"runs"'):
        lines = [(line, n) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
        return [
            (_checked(json_value(line, str(path), ALLOWED, n), str(path), n), n)
            for line, n in lines
        ]
    return [(given, None) for given in parse(text, str(path), GivenRuns).runs]


def _of_cells(cells: Mapping[str, str], path: str, line: int) -> Given:
    keys = {key: cells[key] for key in KEYS if key in cells}
    if keys and "layout" in cells:
        raise InputError(
            "a layout and layout keys beside it", path=path, line=line, key=next(iter(keys)),
            allowed="one of the two",
        )  # fmt: skip
    layout = cells.get("layout") or ",".join(f"{key}={value}" for key, value in keys.items())
    document: dict[str, Any] = {
        key: cells[key] for key in ("scenario", "step_seconds", "name") if key in cells
    }
    seconds = document.get("step_seconds")
    if seconds is not None:
        with suppress(ValueError):  # text is refused below
            document["step_seconds"] = float(seconds) if seconds.isascii() else seconds
    return _checked({**document, "layout": layout}, path, line)


def _checked(document: Any, path: str, line: int) -> Given:
    if not isinstance(document, dict):
        raise InputError("is no mapping", path=path, line=line, allowed=ALLOWED)
    try:
        return Given.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        problem = input_error(error, from_plain(document), Given)
        raise problem.located(path, line, None, problem.key) from None


def _costed(given: Given, path: str | Path, line: int | None, number: int) -> OwnRun:
    """The run with its prediction in the framework's own rank order."""
    name = given.name or f"run {number}"
    try:
        file = resolve("scenario", given.scenario, Path(path).parent)
        scenario = load_scenario(file, {k: json.dumps(v) for k, v in given.overrides.items()})
        ctx = CostContext.of(scenario)
        layout = given_layout(ctx, parse_layout(given.layout), "layout")
    except IllegalLayoutError as error:
        raise InputError(
            f"{name} cannot be costed: {error}", path=str(path), line=line, key="layout",
            value=given.layout, allowed="a layout that the scenario's software runs",
        ) from None  # fmt: skip
    except InputError as error:
        raise error.located(str(path), line, None, f"{name}: {error.key or 'scenario'}") from None
    except PlannerError as error:
        raise InputError(f"{name} cannot be costed: {error}", path=str(path), line=line) from None
    return _predicted(name, scenario, layout, given.step_seconds, str(path), line)


def _predicted(
    name: str, scenario: Scenario, layout: Any, measured: float, path: str, line: int | None
) -> OwnRun:
    axes = next(iter(scenario.software.orders.values()))
    fill = fill_of(scenario.topology.widths, scenario.num_accelerators)
    splits = order_splits(layout, axes, fill)
    seconds = float(step.evaluate(CostContext.of(scenario), layout, splits).total)
    return OwnRun(name, scenario, layout, splits, seconds, measured, path, line)


def _of_row(run: Any, path: str) -> OwnRun:
    """A row of the published form."""
    measured = run.std.iter_time_s
    if measured is None:
        raise InputError(f"row '{run.id}' has no step time", path=path, key="std.iter_time_s")
    try:
        found = predict(job_of(run))
    except UnscorableError as error:
        raise InputError(f"row '{run.id}' cannot be costed: {error.reason}", path=path) from None
    except PlannerError as error:
        raise InputError(f"row '{run.id}' cannot be costed: {error}", path=path) from None
    return OwnRun(
        run.id, found.scenario, found.layout, found.splits, found.step_seconds, measured, path
    )
