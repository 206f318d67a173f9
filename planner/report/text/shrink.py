"""How a job can go on after it lost nodes, as tables: the options, and the nodes of the fastest."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from planner.advise.shrink import Remaining, Shrunk
from planner.report.text.numbers import plural, seconds, signed_percent
from planner.report.text.pieces import BAD, STRONG, Row, facts, note, section, stacked, table
from planner.report.text.plan.nodes import node_names, nodes


def shrink_report(shrunk: Shrunk) -> RenderableType:
    """The options, the fastest first, and the nodes of that one."""
    head = facts(
        [
            ("lost", node_names(shrunk.lost)),
            ("left", Text(f"{plural(shrunk.usable_accelerators, 'accelerator')} for one job")),
            ("before", Text(f"{seconds(shrunk.former_step_seconds, 4)} a step")),
        ]
    )
    if not shrunk.options:
        return Group(Text("No option keeps the batch and fits.", f"bold {BAD}"), head)
    columns = [
        ("", "l"), ("accelerators", "r"), ("layout", "w"), ("step", "r"), ("loss", "r"),
        ("memory", "l"),
    ]  # fmt: skip
    return stacked(
        head,
        section(
            "Options with the same global batch, the fastest first",
            table(columns, [_option(option) for option in shrunk.options]),
            note(
                f"All layouts were searched on {_counts(shrunk.searched_num_accelerators)} "
                "accelerators; on "
                f"{plural(shrunk.ruled_out_by_bound, 'other count')} none can be faster."
            ),
        ),
        nodes(shrunk.options[0].plan),
    )


def _option(option: Remaining) -> Row:
    plan = option.plan
    assert plan.layout is not None and plan.step_seconds is not None
    return (
        Text(option.name, STRONG),
        f"{plan.inputs['num_accelerators']:,}",
        plan.layout.label(),
        seconds(plan.step_seconds, 4),
        signed_percent(option.loss_fraction),
        plan.memory.verdict if plan.memory else "",
    )


def _counts(counts: Sequence[int]) -> str:
    return ", ".join(f"{count:,}" for count in counts) or "no count of"
