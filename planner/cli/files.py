"""Commands about input files: `planner list` and `schema` show what there is, `planner import`
turns files of other programs into the planner's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.cli import options
from planner.cli.program import DONE, NO_LAYOUT, Subjects

if TYPE_CHECKING:
    from planner.inputs.files import FileKind

LISTED: Mapping[str, FileKind] = {
    "topologies": "topology",
    "inventories": "inventory",
    "models": "model",
    "scenarios": "scenario",
    "software": "software",
    "accelerators": "accelerator",
    "sweeps": "sweep",
}
"""What `planner list` takes → which files it lists; targets are no files."""

SCHEMAS = ("scenario", "topology", "inventory", "model", "sweep")


@click.command(name="list")
@click.argument("kind", metavar="KIND", type=options.Choice([*LISTED, "targets"]))
@options.as_json
def list_(kind: str, as_json: bool) -> None:
    """List what ships.

    KIND is topologies, inventories, models, scenarios, software, accelerators, sweeps or targets.
    """
    from planner.cli.output import show
    from planner.report.text.listing import facts_of, listing_report

    facts = _targets() if kind == "targets" else facts_of(LISTED[kind])
    show({kind: facts}, listing_report(facts), as_json)


def _targets() -> list[dict[str, Any]]:
    from planner import api

    return [
        {"name": to.name, "version": to.version, "tier": str(to.tier), "writes": to.description}
        for to in api.targets()
    ]


@click.command()
@click.argument("kind", metavar="NAME", type=options.Choice(SCHEMAS))
def schema(kind: str) -> None:
    """Print the JSON Schema of one kind of file, for editors.

    NAME is scenario, topology, inventory, model or sweep.
    """
    from planner import api
    from planner.cli.output import print_json

    print_json(api.schema(kind))


# ---------------------------------------------------------------- import


@click.group(name="import", cls=Subjects)
def import_() -> None:
    """Turn files of other programs into files of the planner."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """What the command line adds to an imported model: its name, its published number of
    parameters, keys to set, and shell variables."""

    name: str | None
    parameters: str | None
    changes: Mapping[str, str]
    variables: Mapping[str, str]


@import_.command(name="model")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--out", metavar="FILE", help="Write the model file here (YAML).")
@click.option("--name", metavar="NAME", help="Its name (default: the checkpoint's, or the file's).")
@click.option(
    "--parameters", metavar="N", help="The published number of parameters, to compare with: 70.6B."
)
@click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE", callback=options.assignments,
    help="Set a key of the model (dotted; the value is YAML). Repeatable.",
)  # fmt: skip
@click.option(
    "--env", "variables", multiple=True, metavar="NAME=VALUE", callback=options.assignments,
    help="Value of a shell variable of a script. Repeatable.",
)  # fmt: skip
@options.gathered(ModelOptions, "model")
@options.as_json
def import_model(
    files: tuple[str, ...], out: str | None, model: ModelOptions, as_json: bool
) -> int:
    """Read a model from files of other programs, and count its parameters.

    FILE is a config.json of Hugging Face, the folder that holds it, or a script with Megatron-LM
    arguments (read, never run). If model.safetensors.index.json is in the same folder, its count
    is compared.

    Exit codes: 0 done, 1 the count is more than 2 % off the published one, 2 bad input.
    """
    from planner import api
    from planner.cli.output import show, write_file
    from planner.report.text.imported_model import imported_report

    imported = api.import_model(
        files,
        name=model.name, parameters=model.parameters, changes=model.changes,
        variables=model.variables,
    )  # fmt: skip
    # also with --json, whose stdout is only the document
    if imported.unknown:
        keys = ", ".join(remark.key for remark in imported.unknown)
        click.echo(f"planner: warning: {imported.path}: not understood: {keys}", err=True)
    if out is not None:
        write_file(out, imported.to_yaml())
    show(imported.to_document(), imported_report(imported), as_json)
    return NO_LAYOUT if imported.is_wrong else DONE


@import_.command("topology")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--out", "out", required=True, metavar="FILE", type=click.Path(dir_okay=False),
    help="Write the inventory here, and the topology next to it as NAME-topology.yaml.",
)  # fmt: skip
@click.option(
    "--like", metavar="TOPOLOGY",
    help="Topology (name or file) whose accelerator and fabrics the cluster has.",
)  # fmt: skip
@click.option(
    "--accelerators", type=click.IntRange(1, 1024), metavar="N",
    help="Accelerators per node, for nodes whose files do not say.",
)  # fmt: skip
@click.option(
    "--format", "format_", metavar="NAME", help="Format of the files. By default their content "
    "tells.",
)  # fmt: skip
@options.as_json
def import_topology(
    files: tuple[str, ...],
    out: str,
    like: str | None,
    accelerators: int | None,
    format_: str | None,
    as_json: bool,
) -> int:
    """Read a cluster from files and merge them by node.

    FILE is what `nvidia-smi topo -m` or ibnetdiscover prints, a topology XML of NCCL, Slurm's
    topology.conf or topology.yaml, a {node: switch} map, a list of ClusterUUIDs or of
    SLURM_TOPOLOGY_ADDR, `kubectl get nodes -o yaml`, or an inventory.

    What no file says stays unknown and is left out.

    Exit codes: 0 done, 1 more is needed before a job can be planned on it, 2 bad input.
    """
    from planner import api
    from planner.cli.output import print_json, write

    target = Path(out)
    imported = api.import_topology(files, like, accelerators, target.stem, format_)
    write(target.parent, api.imported_files(imported, target.name))
    if as_json:
        print_json(imported.to_document())
    else:
        for note in imported.notes:
            click.echo(f"note: {note}")
        for ask in imported.asks:
            click.echo(f"needed: {ask}")
    return NO_LAYOUT if imported.asks else DONE
