"""What the import linter cannot say: heavy libraries load where they are used, and costs are
written once for numbers and arrays.

The floors themselves are contracts in pyproject.toml, checked by `lint-imports`. Read off the
sources with `ast`; nothing is imported.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import planner

ROOT = Path(planner.__file__).parent

WHERE_ORTOOLS_IS_USED = "search.assign"

LIGHT = {"click"}
"""What the command line may load before it knows the command, beside the standard library."""

LIGHT_OURS = {"errors", "cli"}

SLOW = ("ortools", "pint", "matplotlib", "pandas", "pyarrow", "ruamel", "jinja2")
"""Libraries that take 0.1 s and more to load: only inside functions, in every module."""


def sources() -> dict[str, ast.Module]:
    """Module name without `planner.` → its syntax tree."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "_data" in parts:
            continue
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text("utf-8"), str(path))
    return found


SOURCES = sources()


@cache
def imports(tree: ast.AST, *, top_level: bool = False) -> tuple[str, ...]:
    """Absolute names of imported modules; from-imports as `module.name` too, relative as '.'.

    top_level: only what runs when the module is imported (not in functions, not for type checkers).
    """
    return tuple(_imports(tree, top_level))


def _imports(tree: ast.AST, top_level: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            if child.level:
                yield "."
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif top_level and (
            isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
        ):
            continue
        yield from _imports(child, top_level)


def ours(tree: ast.AST, *, top_level: bool = False) -> set[str]:
    """Modules of the planner that are imported, without `planner.`."""
    found = set()
    for name in imports(tree, top_level=top_level):
        if name.startswith("planner."):
            parts = name.removeprefix("planner.").split(".")
            while parts and ".".join(parts) not in SOURCES:
                parts.pop()  # a name in a module
            if parts:
                found.add(".".join(parts))
    return found


def third_party(tree: ast.AST, *, top_level: bool) -> set[str]:
    names = {name.split(".")[0] for name in imports(tree, top_level=top_level)}
    return names - {"planner", "."}


def test_imports_run_down_the_floors() -> None:
    """The contracts of pyproject.toml hold."""
    program = Path(sys.executable).with_name("lint-imports")
    found = subprocess.run(
        [program, "--no-cache"], cwd=ROOT.parent, capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("module", SOURCES)
def test_imports_are_absolute(module: str) -> None:
    assert "." not in set(imports(SOURCES[module]))


def test_the_package_itself_loads_nothing() -> None:
    assert ours(SOURCES[""], top_level=True) == set()
    assert third_party(SOURCES[""], top_level=True) <= {"importlib", "typing", "__future__"}


# --- what loads when ------------------------------------------------------------------------------


@pytest.mark.parametrize("module", SOURCES)
def test_ortools_is_loaded_only_where_the_model_is_built(module: str) -> None:
    if module != WHERE_ORTOOLS_IS_USED:
        assert "ortools" not in third_party(SOURCES[module], top_level=False)
    assert not third_party(SOURCES[module], top_level=True) & set(SLOW)


def test_the_assignment_model_does_use_ortools() -> None:
    assert "ortools" in third_party(SOURCES[WHERE_ORTOOLS_IS_USED], top_level=False)


@pytest.mark.parametrize("module", [n for n in SOURCES if n == "cli" or n.startswith("cli.")])
def test_command_line_starts_light(module: str) -> None:
    import sys

    tree = SOURCES[module]
    assert third_party(tree, top_level=True) <= LIGHT | sys.stdlib_module_names
    assert {name.split(".")[0] for name in ours(tree, top_level=True)} <= LIGHT_OURS


# --- one formula for numbers and arrays -----------------------------------------------------------

COST = sorted(name for name in SOURCES if name.startswith("cost."))

ONE_LAYOUT_ONLY = {"stage_layers"}
"""Attributes that tables do not have: asking for them is asking which of the two it is."""


def layout_attributes(tree: ast.AST) -> set[str]:
    """Attributes read off a name `layout` in a piece of code."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "layout"
    } - ONE_LAYOUT_ONLY


def decides_by_layout(tree: ast.AST) -> list[str]:
    """Branches, and/or/not, chained comparisons and builtins such as min() on layout values."""
    found = []
    for node in ast.walk(tree):
        tests: list[ast.AST] = []
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            tests = [node.test]
        elif isinstance(node, ast.BoolOp):
            tests = list(node.values)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            tests = [node.operand]
        elif isinstance(node, ast.Compare) and len(node.ops) > 1:
            tests = [node]
        elif isinstance(node, ast.Match):
            tests = [node.subject]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("min", "max", "int", "float", "bool", "round", "range")
        ):
            tests = list(node.args)
        for test in tests:
            found += [f"line {node.lineno}: layout.{a}" for a in sorted(layout_attributes(test))]  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("module", COST)
def test_costs_do_not_branch_on_a_layout(module: str) -> None:
    assert decides_by_layout(SOURCES[module]) == []


@pytest.mark.parametrize(
    "text",
    [
        "x = 1 if layout.tp > 1 else 0", "if layout.pp == 1:\n    pass", "x = max(layout.vp, 2)",
        "x = layout.sp and 3", "x = not layout.sp", "x = 1 < layout.tp < 3",
        "while layout.mbs:\n    pass", "x = int(layout.tp)",
    ],
)  # fmt: skip
def test_a_branch_on_a_layout_is_caught(text: str) -> None:
    assert decides_by_layout(ast.parse(text)) != []


@pytest.mark.parametrize(
    "text", ["x = np.where(layout.tp > 1, 1, 0)", "x = -(-layout.pp // 2)",
             "if layout.stage_layers is not None:\n    pass"],
)  # fmt: skip
def test_a_formula_of_a_layout_is_not(text: str) -> None:
    assert decides_by_layout(ast.parse(text)) == []


@pytest.mark.parametrize("module", COST)
def test_costs_use_numpy_and_not_math(module: str) -> None:
    assert "math" not in third_party(SOURCES[module], top_level=False)
