"""Hooks of mkdocs: reference pages generated from the program, a nav without missing pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GENERATED = ("reference/layout-keys.md", "reference/commands.md", "reference/files.md")
KINDS = {
    "scenario": "A job: model, cluster, batch, software, and restrictions on the search.",
    "topology": "A cluster: its accelerator and its tiers, inner to outer.",
    "model": "A model: its dimensions, experts and layer pattern.",
    "accelerator": "An accelerator type: peaks, memory, kernel coefficients.",
    "fabric": "The links of a tier: bandwidth, latencies, efficiencies.",
    "software": "A framework: its rules, schedules and coefficients.",
    "inventory": "The nodes that a cluster really has.",
    "sweep": "Many scenarios: a base scenario, and axes of values for its keys.",
}


def on_config(config: Any) -> Any:
    """Leave pages that do not exist out of the nav."""
    config.nav = _present(config.nav)
    return config


def _present(nav: Any) -> Any:
    present = []
    for item in nav:
        (title, target), *_ = item.items() if isinstance(item, dict) else [(None, item)]
        if isinstance(target, list):
            children = _present(target)
            if children:
                present.append({title: children})
        elif target in GENERATED or (HERE / target).is_file():
            present.append(item)
    return present


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages that are generated from the program."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def pages() -> dict[str, str]:
    """The generated pages, name to text."""
    return dict(zip(GENERATED, (layout_keys_page(), commands_page(), files_page()), strict=True))


# ---------------------------------------------------------------- layout keys


def layout_keys_page() -> str:
    """Every layout key, from the program's table of them."""
    from planner.layouts.keys import KEYS

    lines = [
        "# Layout keys\n\nGenerated from the program's table of keys (`planner/layouts/keys.py`). "
        "`--layout` takes them as `KEY=VALUE`, joined by commas: `--layout tp=8,pp=4,mbs=1`. The "
        "`search:` section of a scenario lists values of them. The column *without it* says which "
        "value `--layout` takes if the key is not given. *Search* is about keys that `search:` "
        "does not list: legal values are *searched*, a value *follows* from others, the *default* "
        "is taken, or `search: {stages: any}` decides.\n",
        "| key | meaning | takes | without it | search |",
        "|---|---|---|---|---|",
    ]
    for name, key in KEYS.items():
        search = "follows" if key.derived else key.choice.value
        cells = (key.meaning, key.allowed, key.without, search)
        lines.append(f"| `{name}` | {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines) + "\n"


# ---------------------------------------------------------------- commands


def commands_page() -> str:
    """Every command with its own help text."""
    import click

    from planner.cli import main

    sections = [
        "# Commands\n\nGenerated from the program's own help. Exit codes: 0 done, 1 no layout fits "
        "or a target cannot express the plan, 2 bad input. `--json` prints one document and "
        "nothing else.\n"
    ]
    for path, command in _commands(main, ("planner",)):
        ctx = click.Context(command, info_name=" ".join(path), max_content_width=90)
        sections.append(f"## {' '.join(path)}\n\n```text\n{command.get_help(ctx)}\n```\n")
    return "\n".join(sections)


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield path, command
        return
    for name in sorted(subcommands):
        yield from _commands(subcommands[name], (*path, name))


# ---------------------------------------------------------------- files


def files_page() -> str:
    """Every key of every kind of file, from the JSON Schemas."""
    sections = [
        "# Files\n\nGenerated from the JSON Schemas (`planner schema scenario` prints one for "
        "editors). A quantity is text with a unit. A *figure* is a mapping `{value, source, "
        "status}`; its status is datasheet, measured, fitted or assumed. Unknown keys, wrong types "
        "and missing sources are errors that name the file, the line and the nearest valid "
        "choice.\n"
    ]
    sections += [_kind(kind, description) for kind, description in KINDS.items()]
    return "\n".join(sections)


def _schema(kind: str) -> Mapping[str, Any]:
    from planner.api import SCHEMAS
    from planner.problem.hardware import Accelerator
    from planner.problem.software import Software
    from planner.problem.topology import Fabric

    classes = {**SCHEMAS, "accelerator": Accelerator, "fabric": Fabric, "software": Software}
    return classes[kind].model_json_schema(by_alias=True)


def _kind(kind: str, description: str) -> str:
    schema = _schema(kind)
    definitions = schema.get("$defs", {})
    other_kinds = {name.casefold() for name in KINDS} - {kind}
    tables = [f"## {kind.capitalize()}\n\n{description}\n\n{_table(schema, definitions)}\n"]
    for name in _nested_names(schema, definitions, other_kinds):
        if name.casefold() != kind:
            title = f"### {kind.capitalize()}: {_words(name)}"
            tables.append(f"{title}\n\n{_table(definitions[name], definitions)}\n")
    return "\n".join(tables)


def _nested_names(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], excluded: set[str]
) -> list[str]:
    """Names of the definitions that a schema refers to, in order, without those in `excluded`."""
    names: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, Mapping):
            reference = value.get("$ref", "")
            name = reference.rpartition("/")[2]
            if name and name not in names and name.casefold() not in excluded:
                names.append(name)
                walk(definitions[name])
            for child in value.values():
                walk(child)
        elif isinstance(value, list):
            for child in value:
                walk(child)

    walk({key: value for key, value in schema.items() if key != "$defs"})
    return names


def _table(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    lines = ["| key | takes | required |", "|---|---|---|"]
    for key, value in schema.get("properties", {}).items():
        default = value.get("default")
        has_scalar_default = default is not None and not isinstance(default, dict | list)
        optional = f"no: {_cell(default)}" if has_scalar_default else "no"
        cell = "yes" if key in required else optional
        lines.append(f"| `{key}` | {_takes(value, definitions)} | {cell} |")
    return "\n".join(lines)


def _takes(value: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if "anyOf" in value:
        options = [
            _takes(option, definitions) for option in value["anyOf"] if option.get("type") != "null"
        ]
        lists_last = sorted(dict.fromkeys(options), key=lambda text: text.startswith("a list"))
        return " or ".join(lists_last)
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"{_words(name)} (a mapping)"
    if "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    kind = value.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(_takes({"type": name}, definitions) for name in kind)
    if kind == "array":
        items = value.get("items")
        return f"a list of: {_takes(items, definitions)}" if items else "a list"
    if kind == "object":
        figure = value.get("properties", {}).get("value")
        if figure is not None:
            return f"a figure: {_cell(figure.get('description', 'a number'))}"
        values = value.get("additionalProperties")
        if isinstance(values, Mapping):
            return f"a mapping to: {_takes(values, definitions)}"
        return "a mapping"
    bounds = [
        f"{sign} {value[name]:,}" for name, sign in
        (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="), ("exclusiveMaximum", "<"))
        if name in value
    ]  # fmt: skip
    if "description" in value:
        return _cell(value["description"])
    names = {"integer": "an integer", "number": "a number", "string": "text",
             "boolean": "`true` or `false`"}  # fmt: skip
    return " ".join([names.get(kind, str(kind)), *bounds])


def _cell(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _words(name: str) -> str:
    spaced = "".join(f" {sign.lower()}" if sign.isupper() else sign for sign in name)
    return spaced.strip()
