"""A plan as a script that starts torchrun on one host; run on each, in order, with NODE_RANK."""

from __future__ import annotations

from planner.errors import ExportError
from planner.frameworks.job import Job
from planner.frameworks.launchers.framework import environment_lines, framework_arguments
from planner.frameworks.launchers.hosts import hosts_of
from planner.frameworks.target import target
from planner.frameworks.text import commented, file_text, stamp

FILE_NAME = "launch.sh"


def export_torchrun(job: Job) -> dict[str, str]:
    """The script, by its name.

    Raises:
        ExportError: the framework cannot express the plan, or torchrun its places: it numbers ranks
            host after host.
    """
    arguments = framework_arguments(job)
    if not arguments.ranks.is_identity:
        raise ExportError(
            "torchrun numbers ranks host after host, and no order of the software's places them as "
            "planned; expressible: search.orders=framework, or the target slurm"
        )
    hosts = hosts_of(job)
    lines = [
        "#!/usr/bin/env bash",
        *commented(stamp(job, target("torchrun"))),
        f"# use, on each of the {hosts.number} hosts: NODE_RANK=<its number from 0, hosts of one "
        "domain in a row>",
        f"# MASTER_ADDR=<host 0> ./{FILE_NAME} PROGRAM.py [ARGUMENT...]",
        "set -euo pipefail",
        ': "${NODE_RANK:?the number of this host, from 0}"',
        ': "${MASTER_ADDR:?name or address of host 0}"',
        *environment_lines(job, hosts),
        *arguments.lines,
        "exec torchrun \\",
        f"  --nnodes={hosts.number} --nproc-per-node={hosts.ranks_each} \\",
        '  --node-rank="$NODE_RANK" --rdzv-backend=static \\',
        '  --master-addr="$MASTER_ADDR" --master-port="${MASTER_PORT:-29500}" \\',
        f'  "$@"{arguments.words}',
    ]
    return {FILE_NAME: file_text(lines)}
