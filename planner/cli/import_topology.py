"""`planner import topology`: a cluster's inventory and topology from what its tools print."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli import options
from planner.cli.program import DONE, NO_LAYOUT


@click.command("topology")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--out", "out", required=True, metavar="FILE", type=click.Path(dir_okay=False),
    help="Write the inventory here, and the topology beside it as NAME-topology.yaml.",
)  # fmt: skip
@click.option(
    "--like", metavar="TOPOLOGY",
    help="Topology (name or file) whose accelerator and fabrics the cluster has.",
)  # fmt: skip
@click.option(
    "--accelerators", type=click.IntRange(1, 1024), metavar="N",
    help="Accelerators of each node that no file counts.",
)  # fmt: skip
@click.option(
    "--format", "format_", metavar="NAME",
    help="Format of the files; without it their content tells.",
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

    Exit codes: 0 done, 1 more must be said before a job can be planned on it, 2 bad input.
    """
    from planner import api
    from planner.cli.output import print_json, write

    target = Path(out)
    found = api.import_topology(files, like, accelerators, target.stem, format_)
    made = api.imported_files(found, target.name)
    write(target.parent, made)
    if as_json:
        print_json(found.to_document())
    else:
        for note in found.notes:
            click.echo(f"note: {note}")
        for ask in found.asks:
            click.echo(f"say: {ask}")
    return NO_LAYOUT if found.asks else DONE
