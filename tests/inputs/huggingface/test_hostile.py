"""Configurations that are broken somewhere: an error of ours, or a model whose file reads back."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import InputError, PlannerError
from planner.frameworks.import_model import import_model
from planner.inputs.values import parse
from planner.problem.model import Model
from planner.report.text.imported_model import imported_report
from planner.report.text.pieces import plain_text
from tests.inputs.huggingface.configs import TYPES, random_config

MANY = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.integers(-3, 70),
    st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8),
    st.lists(st.integers(-1, 9) | st.sampled_from(["full_attention", "sliding_attention", "x"]),
             max_size=8),
    st.dictionaries(st.sampled_from(["model_type", "hidden_size", "a.b", ""]), st.integers(0, 9),
                    max_size=2),
)  # fmt: skip


def survives(path: Path, text: bytes) -> None:
    """Whether the file is answered; whatever is read comes back and is printed."""
    path.write_bytes(text)
    try:
        found = import_model(path, parameters="1M")
    except PlannerError as error:
        assert str(error) and isinstance(error, InputError) and (error.path or error.key)
        return
    assert parse(found.to_yaml(), "model.yaml", Model) == found.model
    json.dumps(found.to_document(), allow_nan=False)
    plain_text(imported_report(found)).encode()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "config.json"


@MANY
@given(st.integers(0, 2**32), st.sampled_from(TYPES), st.data())
def test_a_key_with_any_value(place: Path, seed: int, kind: str, data: st.DataObject) -> None:
    config: dict[str, Any] = random_config(Random(seed), kind)
    extra = ["layer_types", "mlp_only_layers", "architectures", "text_config", "_name_or_path",
             "sliding_window", "quantization_config", "dtype", "\x1b[31m", "head_dim"]  # fmt: skip
    for _ in range(data.draw(st.integers(1, 2))):
        config[data.draw(st.sampled_from([*config, *extra]))] = data.draw(VALUES)
    survives(place, json.dumps(config).encode())


@MANY
@given(st.integers(0, 2**32), st.sampled_from(TYPES), st.data())
def test_any_bytes_changed(place: Path, seed: int, kind: str, data: st.DataObject) -> None:
    text = bytearray(json.dumps(random_config(Random(seed), kind)).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        what = data.draw(st.sampled_from(["set", "cut", "copy", "end"]))
        if what == "set":
            text[at] = data.draw(st.integers(0, 255))
        elif what == "cut":
            del text[at : at + 1]
            text += b" "
        elif what == "copy":
            text[at:at] = text[data.draw(st.integers(0, len(text) - 1)) :][:20]
        else:
            del text[max(at, 4) :]
    survives(place, bytes(text))
