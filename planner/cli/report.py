"""`planner report`: a plan or a sweep as a web page, and its pictures as files."""

from __future__ import annotations

from dataclasses import replace
from math import isclose
from pathlib import Path
from typing import Any

import click

from planner.cli import options

KINDS = ("png", "svg", "pdf")


@click.command()
@click.argument("path", metavar="PLAN|DIR")
@click.option("--out", required=True, metavar="FILE.html", help="Write the page here.")
@click.option("--pictures", metavar="DIR", type=click.Path(file_okay=False),
              help="Save the pictures here too.")  # fmt: skip
@click.option("--format", "kind", type=options.Choice(KINDS), default="png", show_default=True,
              metavar="KIND", help="What the saved pictures are: png, svg or pdf.")  # fmt: skip
@click.option("--point", type=click.IntRange(min=0), metavar="N",
              help="Of a sweep's folder, the whole plan of this point.")  # fmt: skip
@click.option("--what-if", "what_if", is_flag=True,
              help="Also what other machines, precisions and counts would buy, each planned anew.",
              )  # fmt: skip
def report(
    path: str, out: str, pictures: str | None, kind: str, point: int | None, what_if: bool
) -> None:
    """Write one web page that needs no network, with pictures and sortable tables.

    DIR is the folder of a plan or of a sweep.
    """
    from planner import api
    from planner.cli.output import write_file
    from planner.errors import InputError

    file = Path(out)
    if file.suffix.lower() not in (".html", ".htm"):
        raise InputError(
            "the page is HTML", path=out, key="--out", value=out,
            allowed="a file name that ends in .html",
        )  # fmt: skip
    subject = _subject(path, point)
    if what_if:
        subject = _outlook(subject, path)
    page = api.report(subject, Path(path).resolve().name)
    write_file(file, page.html)
    if pictures is None:
        return
    from planner.report.plots import drawing

    if not page.pictures:
        drawing.require_matplotlib()  # that may be why
        click.echo("no pictures: there is no plan to draw", err=True)
    for picture in page.pictures:
        saved = Path(pictures) / f"{picture.name}.{kind}"
        drawing.save(drawing.page_of(picture.axes), saved)
        click.echo(f"wrote {saved}", err=True)


def _outlook(subject: Any, path: str) -> Any:
    """What would become of a plan, which is planned anew as the changes of it are."""
    from planner import api
    from planner.cli.progress import saying
    from planner.errors import InputError
    from planner.planning.plan import Plan
    from planner.search.stage_splits.best_split import CLOSE

    allowed = "what `planner plan --out` wrote, or a point of a sweep by --point"
    if not isinstance(subject, Plan) or subject.search is None:
        raise InputError(
            "other machines are asked about for the plan that a search found", path=path,
            key="--what-if", allowed=allowed,
        )  # fmt: skip
    if subject.status != "optimal":
        raise InputError(
            "what a change saves is told against a plan that is proven", path=path,
            key="--what-if", value=subject.status, allowed="a plan whose status is optimal",
        )  # fmt: skip
    found = api.what_if(api.scenario_of(subject), say=saying())
    was, now = subject.objective_seconds or 0.0, found.plan.objective_seconds or 0.0
    if not isclose(was, now, rel_tol=CLOSE):
        raise InputError(
            f"planned anew, its step of {was:.6g} s is one of {now:.6g} s", path=path,
            key="--what-if", allowed="a plan of this version of planner and of its error bars",
        )  # fmt: skip
    return replace(found, plan=subject)


def _subject(path: str, point: int | None) -> Any:
    """The plan or the sweep that a path holds."""
    from planner import api
    from planner.errors import InputError
    from planner.inputs.files import is_folder
    from planner.report.page.pages import is_sweep, point_of

    if is_sweep(path):
        sweep = api.read_sweep(path)
        return sweep if point is None else point_of(sweep, point)
    if point is not None:
        raise InputError(
            "only a sweep has points", path=path, key="--point", value=point,
            allowed="the folder of a sweep",
        )  # fmt: skip
    if is_folder(Path(path)) and not (Path(path) / "plan.json").exists():
        raise InputError(
            "the folder holds neither plan.json nor sweep.sqlite", path=path, key="PLAN|DIR",
            allowed="a plan file, or what `planner plan --out` or `planner sweep --out` wrote",
        )  # fmt: skip
    return api.read_plan(path)
