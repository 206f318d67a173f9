"""What `import planner` offers, name by name: a change here is a change for users."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import planner
from planner import api

ERRORS = [
    "ExportError", "IllegalLayoutError", "InputError", "PlannerError", "UnknownNameError",
    "UnsupportedError",
]  # fmt: skip
PUBLIC = ["__version__", *api.__all__, "Layout", *ERRORS]

CALLS = [name for name in api.__all__ if name[0].islower()]
HOME = Path(planner.__file__).parent.parent


def in_a_fresh_interpreter(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=HOME
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_all_is_exactly_this() -> None:
    assert sorted(planner.__all__) == sorted(PUBLIC)
    assert len(set(planner.__all__)) == len(planner.__all__)


def test_dir_is_the_same() -> None:
    assert sorted(dir(planner)) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_resolves_and_is_documented(name: str) -> None:
    value = getattr(planner, name)
    assert value is not None
    if name != "__version__":
        assert not inspect.ismodule(value)
        assert inspect.getdoc(value)


def test_the_reference_lists_every_name_once() -> None:
    page = (HOME / "docs/python.md").read_text("utf-8")
    listed = re.findall(r"^::: planner\.(?:[a-z_]+\.)+(\w+)$", page, re.MULTILINE)
    assert sorted([*listed, "__version__"]) == sorted(PUBLIC)


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_callable_however_they_are_reached(name: str) -> None:
    """Also after the submodules are loaded, whose names they must not hide behind."""
    for module in pkgutil.walk_packages(planner.__path__, "planner."):
        importlib.import_module(module.name)
    assert getattr(planner, name) is getattr(api, name)
    assert callable(getattr(planner, name))


def test_the_calls_work_in_a_fresh_interpreter() -> None:
    code = (
        "import planner\n"
        "scenario = planner.load_scenario('llama3-8b-h100x8')\n"
        "best = planner.plan(scenario)\n"
        "assert isinstance(best, planner.Plan), type(best)\n"
        "other = planner.evaluate(scenario, 'tp=2')\n"
        "assert planner.plan(scenario).objective_seconds == best.objective_seconds\n"
        "assert planner.compare(best, other).time\n"
    )
    in_a_fresh_interpreter(code)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        planner.nonsense  # noqa: B018


def test_everything_that_api_has_is_exported_or_private() -> None:
    own = {
        name
        for name, value in vars(api).items()
        if getattr(value, "__module__", None) == "planner.api" and callable(value)
    }
    assert {name for name in own if not name.startswith("_")} <= set(api.__all__)
    assert set(api.__all__) <= set(planner.__all__)


def test_a_call_takes_what_stands_for_a_scenario() -> None:
    small = {"search.tp": [1, 2], "search.mbs": 1, "search.recompute": "none"}
    scenario = planner.load_scenario("llama3-8b-h100x8", small)
    document = scenario.model_dump(mode="json", by_alias=True)
    assert planner.load_scenario(scenario) is scenario
    assert planner.plan(scenario).layout == planner.plan(document).layout
    assert planner.load_scenario(document, {"num_accelerators": 4}).num_accelerators == 4
    assert planner.evaluate("llama3-8b-h100x8", "tp=2").layout.tp == 2
    with pytest.raises(planner.InputError, match="did you mean 'llama3-8b-h100x8'"):
        planner.plan("llama3-8b-h100x9")


@pytest.mark.parametrize(
    "overrides", [{"num_accelerators": 4}, {"num_accelerators": "4"}, {"search.tp": (1, 2)}]
)
def test_overrides_are_yaml_text_or_plain_values(overrides: dict[str, object]) -> None:
    scenario = planner.load_scenario("llama3-8b-h100x8", overrides)
    assert (scenario.num_accelerators, scenario.search.tp) in [(4, None), (8, (1, 2))]


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, planner\n"
        "planner.__version__, planner.__all__, dir(planner)\n"
        "heavy = {'numpy', 'pydantic', 'ortools', 'pint', 'ruamel', 'rich', 'click'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    assert in_a_fresh_interpreter(code) == "[]"


def test_every_error_is_a_planner_error_with_an_exit_code() -> None:
    errors = [name for name in PUBLIC if name.endswith("Error")]
    for name in errors:
        kind = getattr(planner, name)
        assert issubclass(kind, planner.PlannerError)
        assert kind.exit_code == (1 if name == "ExportError" else 2)


def test_extras_are_loaded_where_they_are_used_alone() -> None:
    """The first command of the README needs none of them."""
    missing = "import sys; [sys.modules.update({name: None}) for name in "
    extras = "('matplotlib', 'jinja2', 'distributed', 'pandas', 'pyarrow')]; "
    code = missing + extras + "from planner import api; print(api.load_scenario.__name__)"
    assert in_a_fresh_interpreter(code) == "load_scenario"


@pytest.mark.parametrize("layout", [None, 5, [], {5: 1}])
def test_what_is_no_layout_is_refused(layout: object) -> None:
    with pytest.raises(planner.InputError, match="is no layout"):
        planner.evaluate("llama3-8b-h100x8", layout)


@pytest.mark.parametrize("scenario", [None, 5, []])
def test_what_is_no_scenario_is_refused(scenario: object) -> None:
    with pytest.raises(planner.InputError, match="is no scenario"):
        planner.plan(scenario)


@pytest.mark.parametrize("overrides", ["a=1", {5: 1}])
def test_what_are_no_overrides_is_refused(overrides: object) -> None:
    with pytest.raises(planner.InputError, match="is no mapping of dotted keys"):
        planner.load_scenario("llama3-8b-h100x8", overrides)


@pytest.mark.parametrize(
    "limits", [{"top_k": 2.5}, {"top_k": True}, {"top_k": None}, {"time_limit_seconds": "3"}]
)
def test_what_are_no_limits_is_refused(limits: dict) -> None:
    with pytest.raises(planner.InputError, match="allowed: a"):
        planner.plan("llama3-8b-h100x8", **limits)


def test_values_of_python_are_taken_as_they_mean() -> None:
    """Numbers of numpy, paths and models, also with overrides of what is in them."""
    model = planner.load_scenario("llama3-8b-h100x8").model
    document = {
        "model": model, "topology": HOME / "topologies/dgx-h100.yaml", "num_accelerators": 8,
        "software": "megatron-core",
        "training": {"sequence_length": 8192, "global_batch_size": 128, "precision": "bf16",
                     "optimizer": "adam"},
    }  # fmt: skip
    given = planner.load_scenario(
        document, {"model.num_layers": 16, "num_accelerators": np.int64(16)}
    )
    assert (given.model.num_layers, given.num_accelerators) == (16, 16)


@pytest.mark.parametrize("layout", ["dp_replicate=9", "tp=2,dp_replicate=7"])
def test_more_replicas_than_ranks_break_the_rule_on_the_world(layout: str) -> None:
    with pytest.raises(planner.IllegalLayoutError, match="world-size"):
        planner.evaluate("llama3-8b-h100x8", layout)
