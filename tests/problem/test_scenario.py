"""Scenarios: loading, overrides, the document form and its hash."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.inputs import files
from planner.inputs.files import names
from planner.inputs.values import load
from planner.problem.scenario import (
    Scenario,
    Search,
    inputs_sha256,
    load_scenario,
    scenario_from_document,
    scenario_to_document,
)
from planner.problem.software import Software
from planner.problem.training import Training


@pytest.fixture
def toy(folder: Path) -> Scenario:
    return load_scenario(folder / "scenario.yaml")


def test_loaded_values(toy: Scenario) -> None:
    assert toy.model.name == "toy-model"
    assert toy.topology.accelerator.name == "toy-part"
    assert toy.num_accelerators == 32
    assert toy.training.total_tokens == 15e12
    assert toy.price_per_accelerator_hour == 2.5
    assert toy.software.orders == {"tp-cp-dp-pp": ("tp", "cp", "dp", "pp")}


def test_search_takes_lists_and_single_values(toy: Scenario) -> None:
    assert toy.search.tp == (1, 2, 4, 8)
    assert toy.search.mbs == (1,)
    assert toy.search.sp == (True,)
    assert toy.search.cp is None


def test_search_defaults() -> None:
    search = Search()
    assert (search.memory, search.tie_fraction, search.orders) == ("fits", 0.005, "any")
    assert search.replace(zero_stage=(0, 1), recompute=("full",)).zero_stage == (0, 1)


def test_software_defaults_to_megatron_core(folder: Path, texts: dict[str, str]) -> None:
    text = texts["scenario.yaml"].replace("software: ./software.yaml\n", "")
    (folder / "scenario.yaml").write_text(text)
    scenario = load_scenario(folder / "scenario.yaml")
    assert scenario.software == load("megatron-core", "software", Software)


@pytest.mark.parametrize(
    ("precision", "peak"),
    [
        ("bf16", "bf16"),
        ("fp16", "fp16"),
        ("fp8", "fp8"),
        ("mxfp8", "fp8"),
        ("fp8-blockwise", "fp8"),
        ("nvfp4", "fp4"),
    ],
)
def test_peak_of_a_precision(precision: str, peak: str, toy: Scenario) -> None:
    training: Training = toy.training.replace(precision=precision)
    assert training.peak_key == peak


def test_overrides(folder: Path) -> None:
    changes = {
        "training.sequence_length": "8192",
        "model.num_layers": "8",
        "topology.tiers.1.width": "2",
        "num_accelerators": "16",
        "search.tp": "[2, 4]",
        "search.pp": "2",
    }
    scenario = load_scenario(folder / "scenario.yaml", changes)
    assert scenario.training.sequence_length == 8192
    assert scenario.model.num_layers == 8
    assert scenario.topology.widths == (8, 2)
    assert (scenario.search.tp, scenario.search.pp) == ((2, 4), (2,))


def test_replace_checks_across_values(toy: Scenario) -> None:
    with pytest.raises(InputError, match="num_accelerators: 33 accelerators are more than the 32"):
        toy.replace(num_accelerators=33)


def test_document_reloads_equal(toy: Scenario) -> None:
    document = json.loads(json.dumps(scenario_to_document(toy)))
    again = scenario_from_document(document)
    assert again == toy
    assert scenario_to_document(again) == document
    rate = again.topology.accelerator.hbm_bytes_per_second
    assert (rate.source, rate.status) == ("test", "assumed")


def test_document_is_read_as_a_file_too(toy: Scenario, tmp_path: Path) -> None:
    path = tmp_path / "inlined.json"
    path.write_text(json.dumps(scenario_to_document(toy), indent=1))
    assert load_scenario(path) == toy


def test_hash_ignores_key_order_and_sees_every_value(toy: Scenario) -> None:
    document = scenario_to_document(toy)
    shuffled = dict(reversed(document.items()))
    assert inputs_sha256(document) == inputs_sha256(shuffled)
    assert len(inputs_sha256(document)) == 64
    other = scenario_to_document(toy.replace(num_accelerators=16))
    assert inputs_sha256(other) != inputs_sha256(document)


counts = st.integers(1, 10**12)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    length=counts,
    batch=counts,
    tokens=st.none() | st.floats(1e-3, 1e30),
    price=st.none() | st.floats(0, 1e9),
    tp=st.none() | st.lists(counts, min_size=1, max_size=4).map(tuple),
)
def test_any_value_reloads_equal(
    toy: Scenario,
    length: int,
    batch: int,
    tokens: float | None,
    price: float | None,
    tp: tuple[int, ...] | None,
) -> None:
    training = toy.training.replace(
        sequence_length=length, global_batch_size=batch, total_tokens=tokens
    )
    scenario = toy.replace(
        training=training, price_per_accelerator_hour=price, search=toy.search.replace(tp=tp)
    )
    document = json.loads(json.dumps(scenario_to_document(scenario)))
    assert scenario_from_document(document) == scenario


@pytest.mark.parametrize("name", names("scenario"))
def test_shipped_scenario_loads_and_reloads(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario_from_document(scenario_to_document(scenario)) == scenario
    assert name.rpartition("x")[2] == str(scenario.num_accelerators)


@pytest.mark.parametrize("name", names("software"))
def test_shipped_software_loads(name: str) -> None:
    assert load(name, "software", Software).name == name


def test_loading_is_fast() -> None:
    """Once the unit library is imported, all files of a scenario load in well under 0.25 s."""
    load_scenario("llama3-70b-h100x1024")

    def seconds() -> float:
        files._read_shipped.cache_clear()
        start = time.process_time()
        load_scenario("llama3-70b-h100x1024")
        return time.process_time() - start

    assert min(seconds() for _ in range(3)) < 0.1


def test_schema_for_editors() -> None:
    schema = Scenario.model_json_schema()
    assert {"model", "topology", "num_accelerators", "training"} <= set(schema["required"])
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["Accelerator"]["properties"]["peak"]["additionalProperties"]


def test_learned_positions_must_reach(toy: Scenario) -> None:
    model = toy.model.replace(num_position_embeddings=toy.training.sequence_length - 1)
    with pytest.raises(InputError, match="learned positions"):
        toy.replace(model=model)
