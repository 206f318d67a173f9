"""A scenario planned, or a given layout evaluated.

`plan`: the options of count and precision, if they are open, are chosen by bound and search; the
layouts of one option are searched with their placements (`layout_search`); the best is put in its
place and on its nodes (`placing`, `nodes`), assessed (`assess`, `groups`) and written down with its
proof and its rivals (`assemble`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf

from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError, InputError
from planner.layouts.layout import Layout, LayoutTable
from planner.planning.assemble import empty_plan, plan_in_place, plan_of_search
from planner.planning.choosing import Chosen, choice_of_batch, choose
from planner.planning.layout_search import LayoutSearch, Stopwatch, search_layouts
from planner.planning.options import batch_is_open, is_open, options
from planner.planning.placing import place_in_framework_order, place_of
from planner.planning.plan import Plan, Status
from planner.problem.scenario import Scenario, ScenarioLike, load_scenario, scenario_from_document
from planner.search.infeasible import relaxation
from planner.search.interface import SideConstraints, Watch, unwatched
from planner.search.layout_problem import LayoutProblem
from planner.search.one_layout import best_placement
from planner.search.space.given import GivenLayout, given_layout, layout_values

# ---------------------------------------------------------------- plan


def plan(
    scenario: ScenarioLike,
    top_k: int = 5,
    time_limit_seconds: float | None = None,
    watch: Watch = unwatched,
    reasons: bool = True,
) -> Plan:
    """The layout and placement of the lowest predicted step, with its proof and runners-up.

    Where nothing fits, why and what would change it, unless `reasons` is false.

    At the time limit, or once `watch` says to stop, the best so far: status feasible with its gap,
    or unknown.

    Raises:
        InputError: top_k or the time limit is out of range.
        PlannerError: the scenario cannot be costed.
    """
    scenario = load_scenario(scenario)
    request = _Request(top_k, time_limit_seconds, watch, reasons)
    if is_open(scenario):
        return _plan_of_best_option(scenario, request)
    search = search_layouts(scenario, top_k, time_limit_seconds, watch)
    best = plan_of_search(search, request.stopwatch, reasons)
    if batch_is_open(scenario):
        return replace(best, choice=choice_of_batch(scenario, best))
    return best


@dataclass(frozen=True, slots=True)
class _Request:
    """How a scenario is to be planned, and since when."""

    top_k: int
    time_limit_seconds: float | None
    watch: Watch
    reasons: bool
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    def __post_init__(self) -> None:
        limit = self.time_limit_seconds
        if type(self.top_k) is not int or self.top_k < 1:
            raise InputError(
                f"{self.top_k!r:.60} is no count of plans", key="top_k", value=self.top_k,
                allowed="an integer >= 1",
            )  # fmt: skip
        if limit is not None and not (isinstance(limit, int | float) and 0 <= limit < inf):
            raise InputError(
                f"{limit!r:.60} is no time limit", key="time_limit_seconds", value=limit,
                allowed="a finite number >= 0",
            )  # fmt: skip


def _plan_of_best_option(scenario: Scenario, request: _Request) -> Plan:
    """The plan of the best count and precision, with what became of the others."""
    chosen = choose(scenario, request.top_k, request.time_limit_seconds, request.watch)
    choice, stopwatch = chosen.choice, request.stopwatch
    if chosen.best is None:
        empty = _plan_of_no_option(scenario, chosen, request)
        relaxations = relaxation.of_open(scenario, empty.relaxations)
        return replace(empty, choice=choice, relaxations=relaxations)
    best = plan_of_search(chosen.best, stopwatch, request.reasons)
    assert best.search is not None
    counts = [search.result.counts for search in chosen.searches if search.result is not None]
    report = replace(
        best.search,
        shapes=sum(count.layouts for count in counts),
        opened=sum(count.opened for count in counts),
        placements=sum(count.placements for count in counts),
        seconds=stopwatch.seconds,
        cpu_seconds=stopwatch.cpu_seconds,
    )
    # its own layouts may be proven while another option is not ruled out
    status: Status = "feasible" if choice.gap_fraction else best.status
    return replace(best, search=report, choice=choice, status=status)


def _plan_of_no_option(scenario: Scenario, chosen: Chosen, request: _Request) -> Plan:
    """Why no option was chosen: time ran out, none keeps the deadline, or none fits."""
    choice, searches = chosen.choice, chosen.searches
    if any(option.status == "unknown" for option in choice.options):
        return empty_plan(scenario, "unknown")
    late = [search for search in searches if search.lowest_value is not None]
    if choice.deadline_seconds is not None and (late or not searches):
        warnings = (_missed_deadline(chosen, late, choice.deadline_seconds),)
        return replace(empty_plan(scenario, "infeasible"), warnings=warnings)
    # none fits: the reasons of the option with the most accelerators are the ones to know
    if searches:
        return plan_of_search(searches[-1], request.stopwatch, request.reasons)
    *_, largest = options(scenario)
    return plan_of_search(search_layouts(largest, 1, None), request.stopwatch, request.reasons)


def _missed_deadline(chosen: Chosen, late: list[LayoutSearch], deadline_seconds: float) -> str:
    text = f"no count keeps the deadline of {deadline_seconds:.4g} s a step"
    if late:
        fastest = min(late, key=lambda search: search.lowest_value or inf)
        return (
            f"{text}; the lowest is {fastest.lowest_value:.4g} s, on "
            f"{fastest.scenario.num_accelerators:,} accelerators"
        )
    ruled_out = [option for option in chosen.choice.options if option.status == "ruled out"]
    bounds = [option.bound for option in ruled_out if option.bound]
    return f"{text}; none can take less than {min(bounds):.4g} s" if bounds else text


def chosen_scenario(scenario: Scenario, plan_: Plan) -> Scenario:
    """The scenario of a plan of another, which may have left count, precision or batch open."""
    if plan_.choice is None:
        return scenario
    return scenario_from_document(plan_.inputs, "the chosen scenario")


# ---------------------------------------------------------------- evaluate


def evaluate(scenario: ScenarioLike, layout: GivenLayout) -> Plan:
    """One given layout in its best placement: time, memory, MFU, walls.

    Status: feasible, or infeasible where it does not fit in memory. Layouts whose groups do not
    nest in the domains are costed in the software's own rank order, from the rank table.

    Raises:
        IllegalLayoutError: a rule is broken.
        InputError: a key or value is wrong.
    """
    scenario = load_scenario(scenario)
    (evaluated,) = evaluate_many(scenario, [layout])
    if isinstance(evaluated, IllegalLayoutError):
        raise evaluated
    return evaluated


def evaluate_many(
    scenario: ScenarioLike, rows: Iterable[GivenLayout]
) -> list[Plan | IllegalLayoutError]:
    """Each given layout evaluated, or the rule it breaks.

    Raises:
        InputError: a key or value is wrong.
    """
    scenario = load_scenario(scenario)
    ctx = CostContext.of(scenario)
    empty = empty_plan(scenario, "feasible")  # its document is hashed once for all rows
    results: list[Plan | IllegalLayoutError] = []
    for row in rows:
        try:
            layout = given_layout(ctx, layout_values(row))
        except IllegalLayoutError as error:
            results.append(error)
        else:
            results.append(_evaluated(ctx, scenario, empty, layout))
    return results


def _evaluated(ctx: CostContext, scenario: Scenario, empty: Plan, layout: Layout) -> Plan:
    best = None
    if layout.grids_nest:
        problem = LayoutProblem(ctx, LayoutTable.from_layouts([layout]))
        constraints = SideConstraints(orders=scenario.search.orders)
        best = best_placement(problem, 0, scenario.search.tie_fraction, constraints)
    place = place_in_framework_order(ctx, layout) if best is None else place_of(ctx, layout, *best)
    evaluated = plan_in_place(ctx, scenario, empty, layout, place)
    fits = evaluated.memory is not None and evaluated.memory.verdict != "no"
    return evaluated if fits else replace(evaluated, status="infeasible")
