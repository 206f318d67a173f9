"""The frame of every page: head, policy, styles, script, pictures, sections."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from planner import __version__
from planner.report.libraries import require_jinja2
from planner.report.page.markup import clean
from planner.report.plots.drawing import page_of, save_to

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

FILES = Path(__file__).parent

LARGEST_SVG = 400_000
"""Bytes above which a picture goes into the page as PNG: a timeline of thousands of boxes."""

SAFE = " !$'()*+,-./:;<=>?@[]^_`{|}~"
"""Characters that need no escape in the data URI of a picture."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture: the name of its file, what it shows, and the axes it is on."""

    name: str
    caption: str
    axes: Axes

    @property
    def title(self) -> str:
        """What is written over the picture, on one line."""
        return " ".join(self.axes.get_title(loc="left").replace(r"\$", "$").split())


@dataclass(frozen=True, slots=True)
class Block:
    """HTML, and pictures under it."""

    html: Markup
    pictures: Sequence[Picture] = ()


def render(
    heading: str, lead: Sequence[str], blocks: Sequence[Block], notes: Sequence[str] = ()
) -> str:
    """The page as text. lead: lines under the heading; notes: at its foot.

    Raises:
        PlannerError: Jinja2 is not installed.
    """
    require_jinja2()
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    style, script = ((FILES / name).read_text("utf-8") for name in ("page.css", "page.js"))
    environment = Environment(
        # a name that the template lacks is an error, not an empty text
        loader=FileSystemLoader(FILES), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("page.html.jinja").render(
        heading=clean(heading), lead=[clean(line) for line in lead], blocks=blocks,
        notes=[clean(note) for note in notes], version=__version__, data_uri=data_uri,
        style=Markup(style), script=Markup(script), style_hash=_hash(style),
        script_hash=_hash(script), clean=clean,
    )  # fmt: skip


def _hash(text: str) -> str:
    """The hash by which the page's policy allows this text and no other."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def data_uri(picture: Picture) -> Markup:
    """The picture in the page's own text: as SVG, or as PNG where that would be too large.

    It is the value of an attribute in double quotes, so what would end it is written as %XX.
    """
    from markupsafe import Markup

    buffer = io.BytesIO()
    # as SVG sharp at any size and readable by machines
    save_to(page_of(picture.axes), buffer, "svg")
    svg = " ".join(buffer.getvalue().decode().split()).replace("> <", "><")
    if "'" not in svg:
        svg = svg.replace('"', "'")  # which needs no escape
    if len(svg) <= LARGEST_SVG:
        return Markup("data:image/svg+xml," + quote(svg, safe=SAFE))
    buffer = io.BytesIO()
    save_to(page_of(picture.axes), buffer, "png")
    return Markup("data:image/png;base64," + b64encode(buffer.getvalue()).decode())
