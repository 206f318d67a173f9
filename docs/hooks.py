"""What mkdocs does beside its own: pages made from the program, and a nav of what there is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MADE = ("reference/commands.md", "reference/files.md")
KINDS = {
    "scenario": "A job: model, cluster, batch, software, and restrictions on the search.",
    "topology": "A cluster: its accelerator and its tiers, inner to outer.",
    "model": "A model: its sizes, experts, patterns.",
    "accelerator": "A part: peaks, memory, kernels.",
    "fabric": "A link: bandwidth, latencies, efficiencies.",
    "software": "A framework: rules, schedules, and the few numbers it costs.",
    "inventory": "The nodes a cluster really has.",
    "sweep": "Many scenarios: a base, and axes of values for its keys.",
}


def on_config(config: Any) -> Any:
    """Leave pages out of the nav that are not there."""
    config.nav = _present(config.nav)
    return config


def _present(nav: Any) -> Any:
    found = []
    for item in nav:
        (title, inner), *_ = item.items() if isinstance(item, dict) else [(None, item)]
        if isinstance(inner, list):
            inner = _present(inner)
            if inner:
                found.append({title: inner})
        elif inner in MADE or (HERE / inner).is_file():
            found.append(item)
    return found


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages that are made from the program."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def pages() -> dict[str, str]:
    """The made pages, name to text."""
    return {MADE[0]: commands_page(), MADE[1]: files_page()}


# ---------------------------------------------------------------- commands


def commands_page() -> str:
    """Every command with its own help text."""
    import click

    from planner.cli import main

    parts = [
        "# Commands\n\nMade from the program's own help. Exit codes: 0 done, 1 no layout fits or a "
        "target cannot express the plan, 2 bad input. `--json` prints one document and nothing "
        "else.\n"
    ]
    for path, command in _commands(main, ("planner",)):
        ctx = click.Context(command, info_name=" ".join(path), max_content_width=90)
        parts.append(f"## {' '.join(path)}\n\n```text\n{command.get_help(ctx)}\n```\n")
    return "\n".join(parts)


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name in sorted(inner):
        yield from _commands(inner[name], (*path, name))


# ---------------------------------------------------------------- files


def files_page() -> str:
    """Every key of every kind of file, from the JSON Schemas."""
    parts = [
        "# Files\n\nMade from the JSON Schemas (`planner schema scenario` prints one for editors). "
        "A quantity is text with a unit. A *figure* is a mapping `{value, source, status}` with "
        "status datasheet, measured, fitted or assumed. Unknown keys, wrong kinds and missing "
        "sources are errors with file, line and the nearest valid choice.\n"
    ]
    parts += [_kind(kind, says) for kind, says in KINDS.items()]
    return "\n".join(parts)


def _schema(kind: str) -> Mapping[str, Any]:
    from planner.api import SCHEMAS
    from planner.problem.hardware import Accelerator
    from planner.problem.software import Software
    from planner.problem.topology import Fabric

    classes = {**SCHEMAS, "accelerator": Accelerator, "fabric": Fabric, "software": Software}
    return classes[kind].model_json_schema(by_alias=True)


def _kind(kind: str, says: str) -> str:
    schema = _schema(kind)
    inside = schema.get("$defs", {})
    whole = {name.casefold() for name in KINDS}
    tables = [f"## {kind.capitalize()}\n\n{says}\n\n{_table(schema, inside)}\n"]
    for name in _parts(schema, inside, whole - {kind}):
        if name.casefold() != kind:
            title = f"### {kind.capitalize()}: {_words(name)}"
            tables.append(f"{title}\n\n{_table(inside[name], inside)}\n")
    return "\n".join(tables)


def _parts(schema: Mapping[str, Any], inside: Mapping[str, Any], stop: set[str]) -> list[str]:
    """Names of the parts that a schema is made of, in order; those of `stop` are files of their
    own."""
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, Mapping):
            reference = value.get("$ref", "")
            name = reference.rpartition("/")[2]
            if name and name not in found and name.casefold() not in stop:
                found.append(name)
                walk(inside[name])
            for child in value.values():
                walk(child)
        elif isinstance(value, list):
            for child in value:
                walk(child)

    walk({key: value for key, value in schema.items() if key != "$defs"})
    return found


def _table(schema: Mapping[str, Any], inside: Mapping[str, Any]) -> str:
    needed = schema.get("required", ())
    lines = ["| key | takes | needed |", "|---|---|---|"]
    for key, value in schema.get("properties", {}).items():
        default = value.get("default")
        plain = default is not None and not isinstance(default, dict | list)
        need = "yes" if key in needed else f"no: {_cell(default)}" if plain else "no"
        lines.append(f"| `{key}` | {_takes(value, inside)} | {need} |")
    return "\n".join(lines)


def _takes(value: Mapping[str, Any], inside: Mapping[str, Any]) -> str:
    if "anyOf" in value:
        arms = [_takes(arm, inside) for arm in value["anyOf"] if arm.get("type") != "null"]
        return " or ".join(sorted(dict.fromkeys(arms), key=lambda arm: arm.startswith("a list")))
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"{_words(name)} (a mapping)"
    if "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value["enum"])
    if "const" in value:
        return f"`{value['const']}`"
    kind = value.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(_takes({"type": one}, inside) for one in kind)
    if kind == "array":
        items = value.get("items")
        return f"a list of: {_takes(items, inside)}" if items else "a list"
    if kind == "object":
        figure = value.get("properties", {}).get("value")
        if figure is not None:
            return f"a figure: {_cell(figure.get('description', 'a number'))}"
        return f"a mapping to: {_takes(value['additionalProperties'], inside)}" \
            if isinstance(value.get("additionalProperties"), Mapping) else "a mapping"  # fmt: skip
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
