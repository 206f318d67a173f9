"""A user's own launch script on a scenario: whether it runs, how fast, and what would be better.

The script is read, never run (`planner.frameworks`); what it says of the job replaces what the
scenario says (`planner.advise.script`); its layout is judged by the rules, evaluated in the
framework's own rank order, and compared with the best plan of the same job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import InstanceOf, PlainSerializer

from planner.advise.explain import own_atom
from planner.advise.script import Contradiction, Judged, judged
from planner.cost.context import CostContext
from planner.errors import IllegalLayoutError, InputError, PlannerError
from planner.frameworks.job import Job
from planner.frameworks.read import read_launch_script, runtime_refusals
from planner.frameworks.script import Note, StatedKey
from planner.frameworks.target import target as target_of
from planner.layouts.layout import Layout
from planner.planning.document import LayoutValue, json_values, versions
from planner.planning.plan import GroupReport, Plan
from planner.planning.solve import evaluate, plan
from planner.problem.scenario import Scenario, ScenarioLike, load_scenario
from planner.search.space.given import judged_layout, layout_values

SMALL_FRACTION = 0.005
"""Exposed traffic below this share of the step is not worth a mention."""

Verdict = Literal["fits", "fragile", "no", "illegal"]


@dataclass(frozen=True, slots=True)
class Crossing:
    """A group that leaves the innermost tier where that costs.

    inside: its members in one innermost domain. exposed_seconds: of a step. best_too: whether the
    best layout's group leaves the tier as well.
    """

    group: str
    members: int
    inside: float
    tiers: tuple[str, ...]
    exposed_seconds: float
    reason: str
    best_too: bool


def _rule(error: IllegalLayoutError) -> dict[str, Any]:
    return {
        "id": error.rule,
        "source": error.source,
        "value": str(error.value),
        "message": error.message,
        "nearest": list(error.nearest),
    }


Rule = Annotated[InstanceOf[IllegalLayoutError], PlainSerializer(_rule)]
"""A rule that the script's layout breaks."""


@dataclass(frozen=True, slots=True)
class Check:
    """A script's layout on a scenario's hardware.

    verdict: illegal where a rule is broken, no where it does not fit in memory; only fits and
    fragile run.
    products: what must multiply to the accelerators and to the batch, in words.
    understood, defaults, otherwise, ignored, unread: what was read off the script, what it leaves
    to the framework, what is judged differently than written, what does not matter, and what is not
    understood.
    crossings: groups that leave the innermost tier where that costs.
    rules: that are broken.
    plan: the layout in the framework's own rank order, None where it is illegal.
    better: the best plan of the same job. gain_seconds, gain_fraction: what it saves of the
    script's step; terms: what takes longer in the script's, by term of time.
    """

    target: str
    target_version: str
    path: str
    software: str
    num_accelerators: int
    verdict: Verdict
    products: tuple[str, ...]
    layout: LayoutValue | None
    gain_seconds: float | None
    gain_fraction: float | None
    terms: Mapping[str, float] | None
    understood: tuple[StatedKey, ...]
    defaults: tuple[Note, ...]
    otherwise: tuple[Note, ...]
    ignored: tuple[Note, ...]
    unread: tuple[Note, ...]
    contradictions: tuple[Contradiction, ...]
    crossings: tuple[Crossing, ...]
    rules: tuple[Rule, ...]
    plan: Plan | None
    better: Plan | None

    @property
    def runs(self) -> bool:
        """Whether it will run."""
        return self.verdict in ("fits", "fragile")

    def to_document(self) -> dict[str, Any]:
        """The check as one JSON document."""
        return {**versions(), "runs": self.runs, **json_values(self)}


def check(
    text: str,
    scenario: ScenarioLike,
    path: str = "SCRIPT",
    target: str | None = None,
    env: Mapping[str, str] | None = None,
    layout: str | Mapping[str, Any] | None = None,
) -> Check:
    """A launch script's layout on a scenario's hardware, with the script's own training.

    The script is read, never run. What it says of count, batch, sequence, precision and model
    counts, and where that contradicts the scenario it is said; hardware is the scenario's.

    text: Megatron or torchtitan arguments or a shell script with them, torchtitan's TOML,
    DeepSpeed's JSON, accelerate's YAML. path: its name in messages. target: what it is, where its
    content does not tell. env: values of shell variables, whatever the script assigns. layout: keys
    that the script leaves to the program.

    Raises:
        UnknownNameError: scripts of that target are not read.
        InputError: not readable, nothing in it is known, a value that counts is unknown or of the
            wrong kind, or it names more accelerators than there are.
    """
    scenario = load_scenario(scenario)
    script = read_launch_script(text, path, target, env)
    found = judged(script, scenario)
    more = dict(layout_values(layout or {}))
    _leave(found, more)
    ctx = CostContext.of(found.scenario)
    given = found.interpretation.layout | more
    if "recompute" in more:  # a script's count is of its own recompute
        given["recompute_layers"] = more.get("recompute_layers")
    completed, rules = judged_layout(ctx, given, path)
    broken = [*found.broken, *rules]
    plan_ = None
    if completed is not None and not broken:
        plan_ = evaluate(found.scenario, completed)
        broken += _refusals(found, plan_, completed)
    if broken:
        plan_ = None
    broken = [_with_pairs(ctx, completed, error) for error in _distinct(broken)]
    better = _better(found)
    return _answer(found, completed, broken, plan_, better)


def _leave(found: Judged, more: Mapping[str, Any]) -> None:
    """Refuse keys that the script says itself; drop what was said of the others' defaults."""
    for stated in found.interpretation.stated:
        if stated.key in more:
            raise InputError(
                f"{stated.key} is said by the script: {stated.setting}", path=found.script.path,
                line=stated.line, key="--layout", value=more[stated.key],
                allowed="keys that the script leaves to the program",
            )  # fmt: skip
    kept = [note for note in found.interpretation.defaults if note.subject not in more]
    found.interpretation.defaults = kept


def _answer(
    found: Judged, layout: Layout | None, broken: list[IllegalLayoutError], plan_: Plan | None,
    better: Plan | None,
) -> Check:  # fmt: skip
    script, interpretation = found.script, found.interpretation
    verdict: Verdict = "illegal"
    if plan_ is not None and plan_.memory is not None:
        verdict = plan_.memory.verdict  # type: ignore[assignment]
    return Check(
        target=script.target,
        target_version=target_of(script.target).version,
        path=script.path,
        software=found.base.software.name,
        num_accelerators=found.base.num_accelerators,
        verdict=verdict,
        understood=tuple(interpretation.stated),
        defaults=tuple(interpretation.defaults),
        otherwise=(*found.notes, *interpretation.approximations),
        ignored=script.ignored,
        unread=script.unread,
        contradictions=tuple(found.contradictions),
        rules=tuple(broken),
        products=() if layout is None else products(layout, found.base),
        layout=layout,
        plan=plan_,
        crossings=() if plan_ is None else _crossings(plan_, better),
        better=better,
        **_gain(plan_, better),
    )


def _distinct(broken: list[IllegalLayoutError]) -> list[IllegalLayoutError]:
    """One of each rule, the framework's own words first."""
    found: dict[str, IllegalLayoutError] = {}
    for error in broken:
        found.setdefault(error.rule, error)
    return list(found.values())


def _refusals(found: Judged, plan_: Plan, layout: Layout) -> list[IllegalLayoutError]:
    """What the framework does not run, though the rules of layouts allow it."""
    # a split that the script states is one that it can run, whether or not an export could write it
    plain = replace(layout, stage_layers=None)
    return runtime_refusals(found.script.target, Job(found.scenario, plain, plan_.rank_order or ()))


def _better(found: Judged) -> Plan | None:
    """The best plan of the same job; None where it cannot be planned."""
    try:
        best = plan(found.base, top_k=1)
    except PlannerError:
        return None
    return None if best.layout is None else best


def _gain(plan_: Plan | None, better: Plan | None) -> dict[str, Any]:
    if plan_ is None or better is None or plan_.time is None or better.time is None:
        return {"gain_seconds": None, "gain_fraction": None, "terms": None}
    assert plan_.step_seconds is not None and better.step_seconds is not None
    gain = plan_.step_seconds - better.step_seconds
    return {
        "gain_seconds": gain,
        "gain_fraction": gain / plan_.step_seconds,
        "terms": {term: seconds - better.time[term] for term, seconds in plan_.time.items()},
    }


# ---------------------------------------------------------------- what the answer says of a layout


def products(layout: Layout, scenario: Scenario) -> tuple[str, ...]:
    """The products that a layout must keep, with their factors."""
    n, stage = scenario.num_accelerators, layout.tp * layout.cp * layout.dp
    texts = [
        f"tp·cp·pp·dp = {layout.tp}·{layout.cp}·{layout.pp}·{layout.dp} = {layout.num_ranks} of "
        f"{n} accelerators",
        f"mbs·dp·micro-batches = {layout.mbs}·{layout.dp}·{layout.num_microbatches} = "
        f"{layout.mbs * layout.dp * layout.num_microbatches} of "
        f"{scenario.training.global_batch_size} sequences",
    ]
    if scenario.model.moe is not None:
        texts.insert(
            1,
            f"etp·ep = {layout.etp}·{layout.ep} = {layout.etp * layout.ep}, to divide tp·cp·dp = "
            f"{layout.tp}·{layout.cp}·{layout.dp} = {stage} ranks of a stage",
        )
    return tuple(texts)


def _with_pairs(
    ctx: CostContext, layout: Layout | None, error: IllegalLayoutError
) -> IllegalLayoutError:
    """Where experts do not fit a stage, the pairs of ep and pp that do, nearest to those given."""
    if error.rule != "experts-fit-ranks" or layout is None or ctx.model.moe is None:
        return error
    n, experts = ctx.num_accelerators, ctx.model.moe.num_experts
    cell = layout.tp * layout.cp

    def fits(ep: int, pp: int) -> bool:
        return n % (cell * pp) == 0 and n // pp % (layout.etp * ep) == 0

    eps = [ep for ep in range(1, layout.ep + 1) if experts % ep == 0 and fits(ep, layout.pp)]
    pps = [pp for pp in range(1, layout.pp + 1) if fits(layout.ep, pp)]
    pairs = [f"ep={ep} with pp={layout.pp}" for ep in eps[-1:]]
    pairs += [f"pp={pp} with ep={layout.ep}" for pp in pps[-1:]]
    nearest = tuple(pairs) or error.nearest
    return IllegalLayoutError(error.rule, error.source, error.value, error.message, nearest)


def _crossings(plan_: Plan, better: Plan | None) -> tuple[Crossing, ...]:
    crossings = []
    for name, group in plan_.groups.items():
        reason = _reason(plan_, name, group)
        if reason is None:
            continue
        inner = next(iter(group.split))
        other = better.groups.get(name) if better is not None else None
        crossings.append(
            Crossing(
                group=name,
                members=group.members,
                inside=group.split[inner],
                tiers=tuple(group.tiers),
                exposed_seconds=group.exposed_seconds,
                reason=reason,
                best_too=other is not None and other.split[inner] < other.members,
            )
        )
    return tuple(crossings)


def _reason(plan_: Plan, name: str, group: GroupReport) -> str | None:
    """Why a group should not leave the innermost tier as it does, if so."""
    inner, *outer = group.split
    beyond = [tier for tier in outer if group.split[tier] > 1]
    if not beyond or not plan_.step_seconds:
        return None
    if name == "ep":
        return (
            f"tokens to experts leave the {inner} domain: dispatch and combine wait for "
            f"{beyond[0]}, and some stacks stall there"
        )
    waits = group.exposed_seconds > SMALL_FRACTION * plan_.step_seconds
    for tier in beyond:
        crossed = group.tiers[tier]
        if waits and crossed["bytes"] * crossed["ridge"] > group.flops:
            share = group.flops / (crossed["bytes"] * crossed["ridge"])
            return f"{share:.2g} × the ridge of {tier}: its links need longer than compute"
    atom = own_atom(plan_, name)
    gains = [
        -swap.seconds for swap in plan_.swaps if swap.seconds is not None and atom in swap.atoms
    ]
    best = max(gains, default=0.0)
    if waits and best > SMALL_FRACTION * plan_.step_seconds:
        return f"another rank order would save {best:.3g} s of a step"
    return None
