"""Plan files that were edited, cut or made up: refused with the place, never followed."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.errors import ExportError, InputError
from tests.scenarios import shipped_plan


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    plan = shipped_plan("llama3-8b-h100x8")
    found: dict[str, Any] = json.loads(json.dumps(plan.to_document()))
    return found


def written(folder: Path, document: Any) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps(document))
    return path


def test_what_was_written_is_read_back(tmp_path: Path, document: dict[str, Any]) -> None:
    path = written(tmp_path, document)
    assert api.read_plan(path) == api.read_plan(tmp_path)
    assert json.loads(json.dumps(api.read_plan(path).to_document())) == document


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tp", 3), ("tp", "2"), ("mbs", -1), ("pp", 0), ("vp", 0), ("overlap", ["tp"]),
        ("cp_kind", "zig"), ("zero_stage", 9), ("stage_layers", "x"), ("stage_layers", [1]),
        ("unheard_of", 1),
    ],
)  # fmt: skip
def test_edited_layouts_are_refused(
    tmp_path: Path, document: dict[str, Any], key: str, value: object
) -> None:
    edited = {**document, "layout": {**document["layout"], key: value}}
    if (key, value) == ("tp", "2"):
        edited["layout"]["dp"] = 5
    with pytest.raises(InputError) as caught:
        api.read_plan(written(tmp_path, edited))
    assert "plan.json" in str(caught.value)


def test_a_file_without_the_attention_kernels_is_read(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    without = {key: value for key, value in document.items() if key != "attention"}
    assert document["attention"] == "flash"
    assert api.read_plan(written(tmp_path, without)).attention is None


def test_attention_kernels_that_the_accelerator_has_not_are_refused(
    tmp_path: Path, document: dict[str, Any]
) -> None:
    part = document["inputs"]["topology"]["accelerator"]["attention"]
    assert document["inputs"]["training"]["attention"] == "auto"
    for kernels in ("flash", "flash-v1", "flash-v2", "flash-v3", "fused-softmax", "naive"):
        assert kernels in part
        assert api.read_plan(written(tmp_path, edit(document, "attention", kernels)))
    with pytest.raises(InputError) as caught:
        api.read_plan(written(tmp_path, edit(document, "attention", "flash-v9")))
    assert caught.value.key == "attention"


def test_edited_inputs_are_refused(tmp_path: Path, document: dict[str, Any]) -> None:
    training = {**document["inputs"]["training"], "global_batch_size": 7}
    edited = {**document, "inputs": {**document["inputs"], "training": training}}
    with pytest.raises(InputError, match="not those the plan was made from"):
        api.read_plan(written(tmp_path, edited))


def edit(document: Any, key: str, value: Any) -> Any:
    """A copy of the document with another value at a dotted key."""
    edited = json.loads(json.dumps(document))
    *parents, last = key.split(".")
    part = edited
    for name in parents:
        part = part[int(name) if isinstance(part, list) else name]
    part[int(last) if isinstance(part, list) else last] = value
    return edited


@pytest.fixture(scope="module")
def on_nodes() -> dict[str, Any]:
    """A plan with nodes, an objective and a count of its own."""
    given = {
        "inventory": "h100-140-nodes", "num_accelerators": "16", "search.tp": "2",
        "search.mbs": "1", "training.attention": "flash-v2",
        "search.num_accelerators": "[8, 16]", "search.objective": "accelerator_seconds",
    }  # fmt: skip
    found: dict[str, Any] = api.plan(api.load_scenario("llama3-8b-h100x8", given)).to_document()
    return found


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step_seconds", 1.0), ("objective_seconds", 0.0), ("bound_seconds", 1.0),
        ("gap_fraction", 0.5), ("tokens_per_second", 1.0), ("time.tp", 9.0),
        ("memory.verdict", "fitsx"), ("memory.peak_bytes", 1.0), ("memory.parameters", 1.0),
        ("memory.capacity_bytes", 0.0), ("memory.worst_stage", 7), ("fill.nvlink", 7),
        ("placement.tp.nvlink", 1), ("nodes.spares.0", "h999"), ("nodes.left_out.h040", "drained"),
        ("choice.objective", "speed"), ("choice.value", 1.0), ("choice.options", []),
        ("choice.options.chosen.num_accelerators", 4), ("mfu", -1.0),
        ("step_seconds_low", 1e9), ("interval_coverage", 5.0), ("interval_kind", "x"),
        ("memory.by_stage.0.stage", 1), ("memory.by_stage.0", {"stage": 0}),
        ("memory.unheard_of", 0.0), ("attention", "flash-v1"),
    ],
)  # fmt: skip
def test_parts_that_do_not_agree_are_refused(
    tmp_path: Path, on_nodes: dict[str, Any], key: str, value: Any
) -> None:
    assert api.read_plan(written(tmp_path, on_nodes))
    if key == "choice.options":
        value = [option | {"status": "solved"} for option in on_nodes["choice"]["options"]]
    chosen = [option["status"] == "chosen" for option in on_nodes["choice"]["options"]]
    if key.startswith("choice.options."):
        key = f"choice.options.{chosen.index(True)}.num_accelerators"
    with pytest.raises(InputError, match="do not agree"):
        api.read_plan(written(tmp_path, edit(on_nodes, key, value)))


@pytest.mark.parametrize(
    ("key", "value"), [("status", "infeasible"), ("status", "unknown"), ("layout", None)]
)
def test_a_status_goes_with_a_layout_or_with_none(
    tmp_path: Path, document: dict[str, Any], key: str, value: Any
) -> None:
    with pytest.raises(InputError, match="a plan with this status has"):
        api.read_plan(written(tmp_path, edit(document, key, value)))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("runners_up.0.layout.stage_layers", 1), ("runners_up.0.layout.tp", "2"),
        ("runners_up.0.layout.edp", 99), ("layout.cp_kind", "zig"), ("layout.dp", 5),
        ("memory.worst_stage", "0"), ("choice.options.0.precision", 8), ("swaps.0.seconds", "1"),
        ("nodes.shared", 0), ("groups.tp.wall", None), ("attention", "flash-v9"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused_with_their_place(
    tmp_path: Path, on_nodes: dict[str, Any], key: str, value: Any
) -> None:
    with pytest.raises(InputError) as caught:
        api.read_plan(written(tmp_path, edit(on_nodes, key, value)))
    assert caught.value.key == key
    assert caught.value.allowed or caught.value.nearest


@pytest.mark.parametrize(
    "place", ["layout", "choice.options.0", "nodes", "memory.by_stage.0", "swaps.0", "groups.tp"]
)
def test_unknown_keys_are_refused_with_their_place(
    tmp_path: Path, on_nodes: dict[str, Any], place: str
) -> None:
    key = f"{place}.unheard_of"
    with pytest.raises(InputError) as caught:
        api.read_plan(written(tmp_path, edit(on_nodes, key, "x")))
    assert caught.value.key == key


@pytest.mark.parametrize("order", [[], [["tp", 3]], [["tp", 2], ["zz", 4]]])
def test_rank_orders_must_number_the_ranks(
    tmp_path: Path, document: dict[str, Any], order: list[Any]
) -> None:
    with pytest.raises(InputError, match="rank order"):
        api.read_plan(written(tmp_path, {**document, "rank_order": order}))


@pytest.mark.parametrize(
    "text",
    ["", "[", "[" * 100_000, "{}", "[]", "null", '{"schema_version": 3}', '{"schema_version": 4}'],
)
def test_other_texts_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(InputError):
        api.read_plan(path)


OLD = Path(__file__).parents[1] / "data" / "plans" / "schema-1.json"


def test_a_plan_file_of_an_older_version_is_answered_by_version() -> None:
    """It says both versions and the way on, and the way on works."""
    with pytest.raises(InputError) as caught:
        api.read_plan(OLD)
    assert (caught.value.key, caught.value.value, caught.value.allowed) == (
        "schema_version", 1, "3",
    )  # fmt: skip
    text = str(caught.value)
    assert "of version 1" in text and "reads version 3" in text
    assert "`inputs`" in text and "`software`" in text and "`planner plan`" in text


def test_the_inputs_of_an_older_plan_file_plan_again(tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.json"
    inputs = json.loads(OLD.read_text())["inputs"]
    scenario.write_text(json.dumps({**inputs, "software": inputs["software"]["name"]}))
    assert api.load_scenario(scenario).model.name == "llama3-8b"


def test_a_plan_file_of_a_newer_version_needs_a_newer_planner(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"of version 4.* newer planner"):
        api.read_plan(written(tmp_path, {"schema_version": 4}))


def test_numbers_are_numbers(tmp_path: Path, document: dict[str, Any]) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({**document, "step_seconds": float("nan")}))
    with pytest.raises(InputError, match="NaN"):
        api.read_plan(path)


def test_paths_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError):
        api.read_plan("x" * 5000)


def test_the_plan_file_is_a_target(tmp_path: Path, document: dict[str, Any]) -> None:
    plan = api.read_plan(written(tmp_path, document))
    (text,) = api.export_plan(plan, "json").values()
    assert json.loads(text) == document


def test_a_layout_that_does_not_fit_is_not_exported() -> None:
    plan = api.evaluate(api.load_scenario("llama3-70b-h100x1024"), "tp=1")
    assert plan.status == "infeasible"
    with pytest.raises(ExportError, match="does not fit"):
        api.export_plan(plan, "megatron")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["llama3-8b-h100x8", "llama3-8b-torchtitan-h100x64", "mixtral-8x7b-h100x64"]
)
def test_an_exported_plan_file_loads_back_to_the_same_score(name: str, tmp_path: Path) -> None:
    plan = shipped_plan(name)
    (text,) = api.export_plan(plan, "json").values()
    (tmp_path / "plan.json").write_text(text)
    loaded = api.read_plan(tmp_path)
    assert loaded.layout == plan.layout and loaded.rank_order == plan.rank_order
    assert loaded.layout is not None and loaded.memory is not None and plan.memory is not None
    again = api.evaluate(api.scenario_of(loaded), loaded.layout)
    assert again.step_seconds == pytest.approx(loaded.step_seconds, rel=1e-12)
    assert again.memory is not None
    assert again.memory.peak_bytes == pytest.approx(loaded.memory.peak_bytes, rel=1e-12)
    assert again.inputs_sha256 == plan.inputs_sha256
