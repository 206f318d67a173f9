"""What is left after nodes are lost, as tables: the ways on, and the nodes of the fastest."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.advise.shrink import Shrunk
from planner.report.text.nodes import named, nodes
from planner.report.text.numbers import plural, seconds, signed_percent
from planner.report.text.pieces import BAD, STRONG, facts, note, section, table


def shrink_report(found: Shrunk) -> RenderableType:
    """The ways on, the fastest first, and the nodes of that one."""
    head = facts(
        [
            ("lost", named(found.lost)),
            ("left", Text(f"{plural(found.usable_accelerators, 'accelerator')} for one job")),
            ("before", Text(f"{seconds(found.former_step_seconds, 4)} a step")),
        ]
    )
    if not found.options:
        return Group(Text("Nothing is left that keeps the batch and fits.", f"bold {BAD}"), head)
    rows: list[Sequence[RenderableType | str]] = []
    for option in found.options:
        assert option.plan.layout is not None and option.plan.step_seconds is not None
        rows.append(
            (
                Text(option.name, STRONG),
                f"{option.plan.inputs['num_accelerators']:,}",
                option.plan.layout.label(),
                seconds(option.plan.step_seconds, 4),
                signed_percent(option.loss_fraction),
                option.plan.memory.verdict if option.plan.memory else "",
            )
        )
    columns = [
        ("", "l"), ("accelerators", "r"), ("layout", "w"), ("step", "r"), ("loss", "r"),
        ("memory", "l"),
    ]  # fmt: skip
    parts: list[RenderableType | None] = [
        head,
        section(
            "Ways on with the same global batch, the fastest first",
            table(columns, rows),
            note(
                f"All layouts were searched on {_numbers(found.searched_num_accelerators)} "
                f"accelerators; on {plural(found.ruled_out_by_bound, 'other number')} of them "
                "none can be faster."
            ),
        ),
        nodes(found.options[0].plan),
    ]
    return Group(*(part for part in parts if part is not None))


def _numbers(counts: Sequence[int]) -> str:
    return ", ".join(f"{count:,}" for count in counts) or "no number of"
