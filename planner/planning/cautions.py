"""What to be careful about in a plan, in sentences."""

from __future__ import annotations

from planner.cost.context import CostContext
from planner.planning.plan import Plan


def cautions(ctx: CostContext, plan_: Plan) -> tuple[str, ...]:
    """The warnings of a plan that holds a layout."""
    found = []
    inner, *outer = ctx.topology.tier_names
    ep = plan_.groups.get("ep")
    if ep is not None and any(ep.split[tier] > 1 for tier in outer):
        most, width = round(ep.split[inner]), ctx.topology.widths[0]
        remedy = (
            f"search: {{ep: [...]}} with at most {width} keeps them inside"
            if ep.members > width
            else "another rank order, or a smaller ep, can keep them inside"
        )
        found.append(
            f"tokens to experts leave the {inner} domain ({most} of {ep.members} ranks are in "
            f"one): legal, but exchanges then wait for the network, and some stacks stall there; "
            f"{remedy}; sums run in another order than inside one domain, so losses of the two "
            "differ in their last digits"
        )
    if plan_.nodes is not None and plan_.nodes.shared:
        found.append(
            "some domains hold several of the plan's equal blocks: groups are costed as the worst "
            "one of the rank table, and the proof is over blocks that each have a domain"
        )
    if plan_.memory is not None and plan_.memory.verdict == "fragile":
        found.append(
            "memory is fragile: the prediction is close under the capacity, and fragmentation can "
            "exceed it; first try expandable allocator segments"
        )
    if ctx.model.mamba is not None:
        found.append(
            "state-space layers: no complete published run stands behind their times, and the bar "
            "is that of models without them"
        )
    return tuple(found)
