"""Axes crossed, zipped and filtered; each point is the scenario that --set would make."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.problem.scenario import load_scenario
from planner.sweep import points
from planner.sweep.points import read_points
from tests.sweep.conftest import AXES

LENGTH, BATCH = "training.sequence_length", "training.global_batch_size"


def values(found):
    return [tuple(point.values.values()) for point in found.points]


def test_the_first_axis_changes_slowest(write) -> None:
    found = read_points(write(AXES))
    assert found.axes == ("num_accelerators", LENGTH)
    assert values(found) == [(n, s) for n in (8, 16) for s in (2048, 4096, 8192)]
    assert [point.number for point in found.points] == list(range(6))


def test_points_are_the_scenarios_of_overrides(write, tmp_path) -> None:
    text = (
        "base: job.yaml\naxes:\n"
        "  topology, num_accelerators: [[dgx-h100, 16], [dgx-a100, 8]]\n"
        "  topology.tiers.1.fabric.bandwidth.value: [25 GB/s, 100 GB/s]\n"
        "  search.tp: [[1, 2], 4, null]\n"
        "  price_per_accelerator_hour: [2 USD/hour]\n"
    )
    found = read_points(write(text))
    assert len(found.points) == 12
    for point in found.points:
        overrides = {key: json.dumps(value) for key, value in point.values.items()}
        expected = load_scenario(tmp_path / "job.yaml", overrides)
        assert found.scenarios.at(point.changes) == expected


def test_shared_values_are_read_once(write, monkeypatch) -> None:
    found = read_points(write(AXES))
    scenarios = [found.scenarios.at(point.changes) for point in found.points]
    assert len({id(scenario.topology) for scenario in scenarios}) == 1
    assert len({id(scenario.training) for scenario in scenarios}) == 3
    monkeypatch.setattr(points, "MOST_CACHED", 2)  # and few are kept
    again = read_points(write(AXES)).scenarios
    assert [again.at(point.changes) for point in found.points] == scenarios
    assert len(again._cache) <= 2


def test_keys_tell_inputs_program_and_settings_apart(write, monkeypatch) -> None:
    keys = {point.key for point in read_points(write(AXES)).points}
    assert len(keys) == 6
    assert keys == {point.key for point in read_points(write(AXES, "other.yaml")).points}
    assert not keys & {p.key for p in read_points(write(AXES.replace("top_k: 1", ""))).points}
    assert not keys & {p.key for p in read_points(write(AXES + "time_limit: 9 s")).points}
    monkeypatch.setattr(points, "program_version", lambda: "0.1.0+another")
    assert not keys & {point.key for point in read_points(write(AXES)).points}


def test_files_of_a_pattern(write, tmp_path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("llama3-8b", "llama2-7b"):
        model = load_scenario("llama3-8b-h100x8", {"model": name}).model
        (folder / f"{name}.json").write_text(model.model_dump_json(by_alias=True))
    sweep = write("base: job.yaml\naxes: {model: {files: 'models/*.json'}}")
    found = read_points(sweep)
    assert values(found) == [("models/llama2-7b.json",), ("models/llama3-8b.json",)]
    models = [found.scenarios.at(point.changes).model.name for point in found.points]
    assert models == ["llama2-7b", "llama3-8b"]
    listed = read_points(write("base: job.yaml\naxes: {model: [models/llama2-7b.json]}"))
    assert listed.points[0].key == found.points[0].key


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ("drop: {num_accelerators: 8}", [(16, 2048), (16, 4096), (16, 8192)]),
        (f"keep: {{{LENGTH}: [2048, 8192], num_accelerators: 16}}", [(16, 2048), (16, 8192)]),
        (f"keep: {{{LENGTH}: {{above: 2048, at_most: 4096}}}}", [(8, 4096), (16, 4096)]),
        (f"drop: {{{LENGTH}: {{at_least: 4096}}}}", [(8, 2048), (16, 2048)]),
        (f"keep: {{{BATCH}: {{below: num_accelerators}}}}", []),
        ("drop: {search.cp: 1, num_accelerators: 16}", [(8, 2048), (8, 4096), (8, 8192)]),
        (f"keep: {{num_accelerators: {{multiple_of: 16}}, {BATCH}: 64}}",
         [(16, 2048), (16, 4096), (16, 8192)]),
    ],
)  # fmt: skip
def test_filters(write, filters, left) -> None:
    sweep = write(f"{AXES}filters:\n- {filters}\n")
    if left:
        assert values(read_points(sweep)) == left
    else:
        with pytest.raises(InputError, match="no point is left"):
            read_points(sweep)


def test_every_filter_must_let_a_point_through(write) -> None:
    two = f"filters:\n- drop: {{num_accelerators: 8}}\n- keep: {{{LENGTH}: 2048}}\n"
    assert values(read_points(write(AXES + two))) == [(16, 2048)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (AXES + "filters:\n- drop: {num_acelerators: 8}\n", "did you mean 'num_accelerators'"),
        (AXES + "filters:\n- drop: {model: {above: 3}}\n", "only numbers can be compared"),
        ("base: job.yaml\naxes: {num_accelerators: [8, 16, 8]}\n",
         "points 0 and 2 have the same inputs: num_accelerators 8; num_accelerators 8"),
        ("base: job.yaml\naxes: {num_accelerators: {files: '*.yaml'}}", "takes no file"),
        ("base: job.yaml\naxes: {model: {files: 'none/*.yaml'}}", "no file matches"),
        ("base: job.yaml\naxes: {training.sequence_lenght: [8]}",
         "did you mean 'sequence_length'"),
        ("base: job.yaml\naxes: {num_accelerators: [0]}", "allowed: an integer >= 1"),
        ("base: {modle: llama3-8b}\naxes: {num_accelerators: [8]}", "did you mean 'model'"),
        ("base: 3\naxes: {num_accelerators: [8]}", "3 is not a scenario"),
        ("base: job.yaml\naxes:\n  num_accelerators: {from: 1, to: 1000, step: 1}\n"
         "  training.global_batch_size: {from: 1, to: 1000, step: 1}", "1,000,000 points"),
    ],
)  # fmt: skip
def test_mistakes(write, text, says) -> None:
    with pytest.raises(InputError) as caught:
        read_points(write(text))
    assert says in str(caught.value)
    assert "sweep.yaml" in str(caught.value)


def test_one_spelling_more_of_the_same_inputs_is_a_repeat(write) -> None:
    text = "base: job.yaml\naxes: {search.tp: [8, [8]]}"
    with pytest.raises(InputError, match="points 0 and 1 have the same inputs"):
        read_points(write(text))


def test_a_point_that_is_no_scenario_says_where(write) -> None:
    text = "base: job.yaml\naxes:\n  num_accelerators:\n    - 8\n    - 1000000\n"
    first, second = read_points(write(text)).points
    assert first.reason is None
    assert "sweep.yaml:5:7" in second.reason and "did you mean '131072'" in second.reason
    assert len(second.key) == 64


@pytest.mark.parametrize(
    "name", ["llama3-70b-length-by-size", "clusters-by-model", "network-by-size"]
)
def test_what_ships_has_no_fault(name) -> None:
    found = read_points(name)
    assert len(found.points) >= 12
    assert all(point.reason is None for point in found.points)


def test_the_example_of_the_page(write, tmp_path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text("utf-8")
    (tmp_path / "clusters").mkdir()
    for name in ("dgx-h100", "dgx-h200"):
        topology = load_scenario("llama3-70b-h100x1024", {"topology": name}).topology
        text = topology.model_dump_json(by_alias=True)
        (tmp_path / "clusters" / f"{name}.yaml").write_text(text)
    found = read_points(write(page.partition("```yaml\n")[2].partition("```")[0]))
    # batch a multiple of the accelerators, and not 768 or 512 on 2,048 of them
    pairs = [(256, 512), (256, 768), (256, 1024), (512, 512), (512, 1024), (1024, 1024)]
    expected = [pair for pair in pairs for _ in range(4)]
    assert [(v[0], v[1]) for v in values(found)] == expected
    assert all(point.reason is None for point in found.points)
