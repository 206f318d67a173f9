"""A plan as a table of ranks: the host and accelerator of each, and its coordinates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from planner.frameworks.job import Job
from planner.frameworks.launchers.framework import framework_arguments
from planner.frameworks.launchers.hosts import hosts_of
from planner.frameworks.target import target
from planner.frameworks.text import commented, file_text, one_line, stamp
from planner.layouts.rank_orders import (
    atom_coordinates,
    expert_coordinates,
    framework_order,
    local_ranks,
)

FILE_NAME = "ranks.tsv"


def export_rank_table(job: Job) -> dict[str, str]:
    """The table, by its name: a row for every rank as the framework counts it.

    Raises:
        ExportError: the framework cannot express the plan, or hosts do not hold it evenly.
    """
    ranks = framework_arguments(job).ranks
    place = np.empty(job.scenario.num_accelerators, dtype=np.int64)  # of every rank
    place[ranks.ranks()] = np.arange(len(place))
    host, names, remark = _hosts_of_places(job)
    columns = {"rank": np.arange(len(place)), "host": host[place]}
    # ranks of a host have its accelerators in the order of their numbers
    columns["local_rank"] = local_ranks(columns["host"])
    order = framework_order(job.layout, job.scenario.software.orders[ranks.order])
    coordinates = atom_coordinates(order)
    columns |= coordinates
    if job.scenario.model.moe is not None:
        experts = expert_coordinates(coordinates, job.layout.etp, job.layout.ep)
        columns |= {name: experts[name] for name in ("etp", "ep", "edp")}
    rows = np.stack(list(columns.values()), axis=1).tolist()
    if names:
        for row in rows:
            row[1] = names[row[1]]
    lines = [
        *commented([*stamp(job, target("rankfile")), remark]),
        "\t".join(columns),
        *("\t".join(map(str, row)) for row in rows),
    ]
    return {FILE_NAME: file_text(lines)}


def _hosts_of_places(job: Job) -> tuple[NDArray[np.int64], list[str], str]:
    """The host of every place, names of hosts where the plan has them, and a line about them."""
    if job.node_runs is not None:
        names = [one_line(name) for name, _ in job.node_runs]
        numbers = {name: i for i, name in enumerate(dict.fromkeys(names))}
        of_run = np.array([numbers[name] for name in names])
        host = np.repeat(of_run, [count for _, count in job.node_runs])
        return host, list(numbers), f"hosts {len(numbers)}, by name, in the order of places"
    hosts = hosts_of(job)
    remark = (
        f"hosts {hosts.number}, ranks on each {hosts.ranks_each}, hosts of a scale-up domain "
        f"{hosts.in_domain}; hosts of one domain in a row"
    )
    return np.arange(job.scenario.num_accelerators) // hosts.ranks_each, [], remark
