"""What launch scripts take from the framework that they start: arguments, ranks, variables."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from planner.frameworks.job import Job, require_expressible
from planner.frameworks.launchers.hosts import Hosts, RankMap, rank_map
from planner.frameworks.megatron.rules import order_misfits
from planner.frameworks.megatron.write import ARRAY as MEGATRON_ARRAY
from planner.frameworks.megatron.write import arguments_array as megatron_array
from planner.frameworks.megatron.write import megatron_refusals
from planner.frameworks.target import target
from planner.frameworks.torchtitan.write import ARRAY as TORCHTITAN_ARRAY
from planner.frameworks.torchtitan.write import arguments_array as torchtitan_array
from planner.frameworks.torchtitan.write import torchtitan_refusals

BLACKWELL = ("b200", "b300", "gb200", "gb300")


@dataclass(frozen=True, slots=True)
class FrameworkArguments:
    """Ranks as the framework counts them, and its arguments in a bash script.

    lines: set the arguments. words: pass them behind the program's own, with a blank before.
    """

    ranks: RankMap
    lines: list[str]
    words: str


def framework_arguments(job: Job) -> FrameworkArguments:
    """The arguments of the framework that a job was scored for.

    Raises:
        ExportError: the framework cannot express the plan, in whatever places its ranks are.
    """
    software = job.scenario.software
    torchtitan, megatron = target("torchtitan"), target("megatron")
    if torchtitan.takes(software):
        require_expressible(torchtitan_refusals(job, torchtitan))
        return FrameworkArguments(rank_map(job), torchtitan_array(job), _all_of(TORCHTITAN_ARRAY))
    if not megatron.takes(software):
        remark = "# NOT SET: the software's own settings; export them too"
        return FrameworkArguments(rank_map(job), [remark], "")
    require_expressible(megatron_refusals(job))
    # an order that Megatron refuses for these degrees cannot stand in for the planned one
    usable = [order for order in megatron.orders if not order_misfits(job, order)]
    ranks = rank_map(job, usable)
    return FrameworkArguments(ranks, megatron_array(job, ranks.order), _all_of(MEGATRON_ARRAY))


def _all_of(array: str) -> str:
    return f' "${{{array}[@]}}"'


# ---------------------------------------------------------------- environment


def environment_lines(job: Job, hosts: Hosts) -> list[str]:
    """Lines that set the variables which the topology and the layout call for."""
    return [
        f"export {name}={shlex.quote(variable.value)}  # {variable.where}"
        for name, variable in target("slurm").environment.items()
        if CONDITIONS[variable.where](job, hosts)
    ]


def _tp_or_cp_before_blackwell(job: Job, hosts: Hosts) -> bool:
    accelerator = job.scenario.topology.accelerator.name
    # Megatron asserts the variable there: it keeps kernels in the order of their launch
    cuts = job.layout.tp * job.layout.cp > 1 and target("megatron").takes(job.scenario.software)
    return cuts and not accelerator.startswith(BLACKWELL)


def _domains_beyond_hosts(job: Job, hosts: Hosts) -> bool:
    return hosts.in_domain > 1 and job.scenario.topology.tiers[0].fabric.kind == "scale-up"


def _reducing_switches(job: Job, hosts: Hosts) -> bool:
    return any(tier.fabric.sharp_efficiency for tier in job.scenario.topology.tiers)


CONDITIONS: Mapping[str, Callable[[Job, Hosts], bool]] = {
    "tp or cp, before Blackwell": _tp_or_cp_before_blackwell,
    "scale-up domains beyond a host": _domains_beyond_hosts,
    "switches that reduce": _reducing_switches,
}
"""When a variable of slurm.yaml is set, by its `where`."""
