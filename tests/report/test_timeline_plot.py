"""The picture of a pipeline: what is drawn where, read off the axes."""

from __future__ import annotations

from typing import Any

import pytest

from planner.layouts.schedules import Pipeline
from planner.layouts.timeline import ChunkPasses, Timeline, play
from planner.report.plots.drawing import figure_of, page_of, save
from planner.report.plots.timeline import plot_timeline

CASES = [
    ("1f1b", 4, 1, 8), ("interleaved", 4, 2, 8), ("zb-h1", 4, 1, 8), ("interleaved-zb", 2, 3, 8),
    ("zb-v", 3, 2, 8), ("dualpipe", 4, 1, 8), ("dualpipev", 2, 2, 4),
]  # fmt: skip


def played(schedule: str, pp: int, vp: int, m: int) -> Timeline:
    count = pp * vp
    return play(
        Pipeline(schedule, pp, vp, m), ChunkPasses([1.0] * count, [1.2] * count, [0.8] * count)
    )


def boxes(ax: Any) -> list[tuple[float, float, float, float]]:
    """Left, right, bottom and top of every box."""
    found = []
    for collection in ax.collections:
        for path in collection.get_paths():
            low, high = path.vertices.min(axis=0), path.vertices.max(axis=0)
            found.append((low[0], high[0], low[1], high[1]))
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_every_pass_is_a_box_and_none_cover_another(case: tuple[str, int, int, int]) -> None:
    timeline = played(*case)
    drawn = sorted(boxes(plot_timeline(timeline)))
    assert len(drawn) == sum(len(spans) for spans in timeline.ranks)
    for i, (_, right, bottom, top) in enumerate(drawn):
        for left, _, other_bottom, other_top in drawn[i + 1 :]:
            if left >= right - 1e-9:
                break
            assert min(top, other_top) - max(bottom, other_bottom) <= 1e-9


def test_boxes_are_where_passes_are() -> None:
    """Three ranks, the second micro-batch on the last: forward from second 4 to 5."""
    ax = plot_timeline(played("1f1b", 3, 1, 2))
    on_last = sorted(box[:2] for box in boxes(ax) if round((box[2] + box[3]) / 2) == 2)
    assert on_last == [pytest.approx(span) for span in ((2, 3), (3, 5), (5, 6), (6, 8))]
    assert ax.get_xlim() == (0, 12)


def test_steady_state_is_cut_out() -> None:
    timeline = played("1f1b", 4, 1, 24)
    ax = plot_timeline(timeline, num_microbatches=100)
    assert ax.get_xlim()[1] < timeline.seconds / 2
    labels = [label.get_text() for label in ax.get_xticklabels()]
    assert labels[0] == "0" and len(labels) == 4
    # 100 micro-batches and three that fill, of three seconds each
    assert labels[-1] == "309 s"
    numbers = {text.get_text() for text in ax.texts}
    assert {"1", "100"} <= numbers
    assert not {"20", "50"} & numbers


def test_both_directions_of_dualpipe_are_counted_on() -> None:
    timeline = played("dualpipe", 4, 1, 24)
    numbers = {text.get_text() for text in plot_timeline(timeline, num_microbatches=80).texts}
    assert {"1", "41", "40", "80"} <= numbers
    assert "25" not in numbers


def test_title_and_legend_say_what_is_shown() -> None:
    ax = plot_timeline(played("zb-h1", 4, 1, 8))
    assert ax.get_title(loc="left").startswith("Zero-bubble H1: 4 ranks, 8 micro-batches, 28.2 s")
    legend = ax.get_legend()
    assert legend is not None
    words = [text.get_text() for text in legend.get_texts()]
    assert words == ["forward", "gradients of inputs", "gradients of weights"]


def test_draws_on_given_axes_and_saves(tmp_path: Any) -> None:
    given = figure_of(6, 3).add_axes((0.1, 0.2, 0.8, 0.7))
    ax = plot_timeline(played("dualpipev", 2, 2, 4), given)
    assert ax is given
    save(page_of(ax), tmp_path / "timeline.svg")
    assert (tmp_path / "timeline.svg").stat().st_size > 1000


def test_many_ranks_stay_on_the_page() -> None:
    figure = page_of(plot_timeline(played("1f1b", 64, 1, 70), num_microbatches=512))
    assert figure.get_size_inches()[1] < 10.5
