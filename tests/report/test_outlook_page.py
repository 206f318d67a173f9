"""What other hardware would save, on a plan's page and drawn."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from planner.advise.what_if import WhatIf
from planner.planning.plan import Plan
from planner.report.page.report import web_page
from planner.report.plots.drawing import page_of
from planner.report.plots.upgrades import plot_upgrades
from planner.report.text.what_if import SCALING, UPGRADES
from tests.made_outlook import GAINS, made_outlook
from tests.report.fabricated import infeasible_plan
from tests.scenarios import shipped_plan


@pytest.fixture(scope="module")
def plan() -> Plan:
    return shipped_plan("llama3-8b-h100x8")


def test_the_sections_and_pictures_follow_the_plan(plan: Plan) -> None:
    alone, page = web_page(plan), web_page(made_outlook(plan))
    added = [picture.name for picture in page.pictures][len(alone.pictures) :]
    assert added == ["upgrades", "scaling"]
    titles = ("Time of a step", UPGRADES, SCALING, "Inputs:")
    places = [page.html.index(text) for text in titles]
    assert places == sorted(places)
    assert UPGRADES not in alone.html
    assert "9 plans, each searched and proven anew" in page.html
    assert "not possible: the part has no fp8" in page.html
    assert "<b>&amp;" not in page.html and "&lt;b&gt;&amp;amp;" in page.html


def test_bars_are_the_savings_the_largest_first(plan: Plan) -> None:
    ax = plot_upgrades(made_outlook(plan))
    names = [label.get_text() for label in ax.get_yticklabels()]
    known = sorted((-gain, text) for text, (gain, _) in GAINS.items() if gain is not None)
    assert names == [text for _, text in known]
    bars = sorted((round(bar.get_y() + 0.35), bar.get_x(), bar.get_width()) for bar in ax.patches)
    # the network: 10 % by the old layout, 15 % more by another; the memory saves nothing
    assert [row for row, _, _ in bars] == [0, 0, 1, 3]
    starts_and_widths = [value for bar in bars for value in bar[1:]]
    assert starts_and_widths == pytest.approx([0.0, 0.10, 0.10, 0.15, 0.0, 0.05, 0.0, -0.125])
    written = [text.get_text() for text in ax.texts]
    assert written == ["25.0 %", "5.0 %", "nothing", "-12.5 %"]
    assert ax.get_title(loc="left") == "Largest saving, 25.0 % of a step: twice the network"


@pytest.mark.parametrize(
    ("gain", "alone", "parts"),
    [
        (0.30, None, [0.30]),  # the old layout does not fit, or is of another count
        (0.30, -0.20, [0.30]),
        (0.30, 0.30, [0.30]),
        (0.0003, -0.20, []),  # nothing, however bad the old layout has become
        (-0.10, -0.20, [-0.10]),
    ],
)
def test_a_bar_ends_where_its_figure_does(
    plan: Plan, gain: float, alone: float | None, parts: list[float]
) -> None:
    outlook = made_outlook(plan)
    base = plan.objective_seconds or 0.0
    same = None if alone is None else base * (1 - alone)
    one = replace(outlook.upgrades[0], gain_fraction=gain, same_layout_seconds=same)
    ax = plot_upgrades(replace(outlook, upgrades=(one,)))
    assert [bar.get_width() for bar in ax.patches] == pytest.approx(parts)


NAMES = (
    "twice the network", "an-inner-link-whose-name-somebody-wrote-long domains of 72 instead of 8",
    "all that one could think of changing in a machine and in what runs on it and around it",
)  # fmt: skip


@pytest.mark.parametrize("gains", [(0.2,), (0.2, 0.2, 0.2), (-0.3, -0.1), (0.02, -0.3, -0.6)])
def test_nothing_covers_anything(plan: Plan, gains: tuple[float, ...]) -> None:
    outlook = made_outlook(plan)
    upgrades = [
        replace(outlook.upgrades[0], text=text, gain_fraction=gain)
        for text, gain in zip(NAMES, gains, strict=False)
    ]
    ax = plot_upgrades(replace(outlook, upgrades=tuple(upgrades)))
    figure = page_of(ax)
    figure.draw_without_rendering()
    legend = ax.get_legend()
    assert legend is not None
    labels = [label.get_window_extent() for label in ax.get_yticklabels()]
    apart = [legend.get_window_extent(), ax.xaxis.label.get_window_extent(), *labels]
    bars = [bar.get_window_extent() for bar in ax.patches]
    assert not [1 for a, b in combinations(apart, 2) if a.overlaps(b)]
    assert not [1 for a in apart for bar in bars if a.overlaps(bar)]
    assert all(figure.bbox.x0 <= box.x0 and figure.bbox.y0 <= box.y0 for box in apart)


def test_where_no_change_can_be_made_none_is_drawn(plan: Plan) -> None:
    outlook = made_outlook(plan)
    page = web_page(replace(outlook, upgrades=outlook.upgrades[4:]))
    assert "upgrades" not in [picture.name for picture in page.pictures]
    assert "not possible: the part has no fp8" in page.html


def test_where_nothing_fits_nothing_is_asked() -> None:
    plan = infeasible_plan()
    assert web_page(WhatIf(plan)).html == web_page(plan).html


def test_what_the_old_layout_saves_is_nothing_where_it_is_too_little(plan: Plan) -> None:
    outlook = made_outlook(plan)
    changed = replace(outlook.upgrades[2], layout_changes={"vp": (15, 6)})
    html = web_page(replace(outlook, upgrades=(changed,))).html
    assert "with the old layout it saves nothing" in html


def test_nothing_bought_is_said(plan: Plan) -> None:
    outlook = made_outlook(plan)
    ax = plot_upgrades(replace(outlook, upgrades=outlook.upgrades[2:4]))
    assert ax.get_title(loc="left") == "No change that was tried makes the step shorter"


def test_counts_are_drawn_where_something_fits(plan: Plan) -> None:
    page = web_page(made_outlook(plan))
    (ax,) = (picture.axes for picture in page.pictures if picture.name == "scaling")
    assert ax.lines[0].get_xydata().tolist() == [[8, 100.0], [16, 75.0]]
