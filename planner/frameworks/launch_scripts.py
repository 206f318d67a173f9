"""What launch scripts share: the framework's arguments as bash, variables, checks by name."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

from planner.errors import ExportError
from planner.frameworks.job import Job
from planner.frameworks.megatron.write import ARRAY, megatron_order_refusals, megatron_refusals
from planner.frameworks.megatron.write import array as megatron_array
from planner.frameworks.rank_map import Hosts, RankMap, rank_map
from planner.frameworks.target import target
from planner.frameworks.torchtitan.write import ARRAY as TITAN_ARRAY
from planner.frameworks.torchtitan.write import array as torchtitan_array
from planner.frameworks.torchtitan.write import torchtitan_refusals

BLACKWELL = ("b200", "b300", "gb200", "gb300")


def _before_blackwell(job: Job, hosts: Hosts) -> bool:
    name = job.scenario.topology.accelerator.name
    cut = job.layout.tp * job.layout.cp > 1
    return _taken_by(job, "megatron") and cut and not name.startswith(BLACKWELL)


def _beyond_hosts(job: Job, hosts: Hosts) -> bool:
    return hosts.in_domain > 1 and job.scenario.topology.tiers[0].fabric.kind == "scale-up"


def _reducing_switches(job: Job, hosts: Hosts) -> bool:
    return any(tier.fabric.sharp_efficiency for tier in job.scenario.topology.tiers)


CONDITIONS: Mapping[str, Callable[[Job, Hosts], bool]] = {
    "tp or cp, before Blackwell": _before_blackwell,
    "scale-up domains beyond a host": _beyond_hosts,
    "switches that reduce": _reducing_switches,
}


def _taken_by(job: Job, name: str) -> bool:
    software = job.scenario.software
    return bool({software.name, software.family} & set(target(name).software))


def exports(job: Job, hosts: Hosts) -> list[str]:
    """Lines that set the variables which the topology and the layout call for."""
    return [
        f"export {name}={shlex.quote(variable.value)}  # {variable.where}"
        for name, variable in target("slurm").environment.items()
        if CONDITIONS[variable.where](job, hosts)
    ]


def framework(job: Job) -> tuple[RankMap, list[str], str]:
    """Ranks as the framework counts them, lines that set its arguments, and how to pass them.

    Raises:
        ExportError: the framework cannot express the plan, in whatever places its ranks are.
    """
    if _taken_by(job, "torchtitan"):
        to = target("torchtitan")
        if reasons := torchtitan_refusals(job, to):
            raise ExportError(*reasons)
        return rank_map(job), torchtitan_array(job), f' "${{{TITAN_ARRAY}[@]}}"'
    if not _taken_by(job, "megatron"):
        return rank_map(job), ["# NOT SET: the software's own settings; export them too"], ""
    if reasons := megatron_refusals(job):
        raise ExportError(*reasons)
    usable = [name for name in target("megatron").orders if not megatron_order_refusals(job, name)]
    found = rank_map(job, usable)
    return found, megatron_array(job, found.order), f' "${{{ARRAY}[@]}}"'
