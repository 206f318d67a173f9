"""`planner import model`: a model file from a `config.json` or a launch script."""

from __future__ import annotations

import click

from planner.cli import options
from planner.cli.program import DONE, NO_LAYOUT


@click.command(name="model")
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
@options.as_json
def import_model(
    files: tuple[str, ...],
    out: str | None,
    name: str | None,
    parameters: str | None,
    changes: dict[str, str],
    variables: dict[str, str],
    as_json: bool,
) -> int:
    """Read a model from a file of others, and count its parameters.

    FILE is a config.json of Hugging Face, the folder it lies in, or a script with Megatron-LM
    arguments (read, never run); beside it, if there is one, the model.safetensors.index.json, whose
    count is compared.

    Exit codes: 0 done, 1 the count is more than 2 % off the one stated, 2 bad input.
    """
    from planner import api
    from planner.cli.output import show, write_file
    from planner.report.text.imported_model import imported_report

    found = api.import_model(
        files, name=name, parameters=parameters, changes=changes, variables=variables
    )
    if found.unknown:
        keys = ", ".join(remark.key for remark in found.unknown)
        click.echo(f"planner: warning: {found.path}: not understood: {keys}", err=True)
    if out is not None:
        write_file(out, found.to_yaml())
    show(found.to_document(), imported_report(found), as_json)
    return NO_LAYOUT if found.is_wrong else DONE
