"""`planner report`: a plan or a sweep as a web page, and its pictures as files."""

from __future__ import annotations

from dataclasses import replace
from math import isclose
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli import options

if TYPE_CHECKING:
    from planner.api import Plan, Report, Sweep, WhatIf

PICTURE_FORMATS = ("png", "svg", "pdf")


@click.command()
@click.argument("path", metavar="PLAN|DIR")
@click.option("--out", required=True, metavar="FILE.html", help="Write the page here.")
@click.option("--pictures", metavar="DIR", type=click.Path(file_okay=False),
              help="Save the pictures here too.")  # fmt: skip
@click.option("--format", "picture_format", type=options.Choice(PICTURE_FORMATS), default="png",
              show_default=True, metavar="KIND",
              help="Format of the saved pictures: png, svg or pdf.")  # fmt: skip
@click.option("--point", type=click.IntRange(min=0), metavar="N",
              help="The plan of this point of a sweep's folder.")  # fmt: skip
@click.option("--what-if", "what_if", is_flag=True,
              help="Also what other hardware, precisions and counts would gain, each planned anew.",
              )  # fmt: skip
def report(
    path: str,
    out: str,
    pictures: str | None,
    picture_format: str,
    point: int | None,
    what_if: bool,
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
    subject = _read_subject(path, point)
    page = api.web_page(_outlook(subject, path) if what_if else subject, Path(path).resolve().name)
    write_file(file, page.html)
    if pictures is not None:
        _save_pictures(page, pictures, picture_format)


def _save_pictures(page: Report, folder: str, picture_format: str) -> None:
    from planner.report.libraries import require_matplotlib
    from planner.report.plots import drawing

    if not page.pictures:
        require_matplotlib()  # raises if that is why there are none
        click.echo("no pictures: there is no plan to draw", err=True)
    for picture in page.pictures:
        path = Path(folder) / f"{picture.name}.{picture_format}"
        drawing.save(drawing.page_of(picture.axes), path)
        click.echo(f"wrote {path}", err=True)


def _outlook(subject: Plan | Sweep, path: str) -> WhatIf:
    """The what-if of a plan, whose scenario is planned anew: it must still give the same step."""
    from planner import api
    from planner.cli.progress import announcer
    from planner.errors import InputError
    from planner.planning.plan import Plan
    from planner.search.stage_splits.best_split import CLOSE

    if not isinstance(subject, Plan) or subject.search is None:
        raise InputError(
            "--what-if needs a plan that a search gave", path=path, key="--what-if",
            allowed="what `planner plan --out` wrote, or a point of a sweep by --point",
        )  # fmt: skip
    if subject.status != "optimal":
        raise InputError(
            "--what-if compares with a plan that is proven", path=path,
            key="--what-if", value=subject.status, allowed="a plan whose status is optimal",
        )  # fmt: skip
    outlook = api.what_if(api.scenario_of(subject), say=announcer())
    # savings are relative to the plan on the page: another version could give another step
    was, now = subject.objective_seconds or 0.0, outlook.plan.objective_seconds or 0.0
    if not isclose(was, now, rel_tol=CLOSE):
        raise InputError(
            f"planned anew, its step of {was:.6g} s becomes {now:.6g} s", path=path,
            key="--what-if",
            allowed="a plan of this version of planner and of its prediction intervals",
        )  # fmt: skip
    return replace(outlook, plan=subject)


def _read_subject(path: str, point: int | None) -> Plan | Sweep:
    """The plan or the sweep that a path holds."""
    from planner import api
    from planner.errors import InputError
    from planner.inputs.files import is_folder
    from planner.report.page.report import is_sweep, point_of

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
