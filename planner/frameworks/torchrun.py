"""A plan as a script that starts torchrun on one host; run on each, in order, with NODE_RANK."""

from __future__ import annotations

from planner.errors import ExportError
from planner.frameworks.job import Job, commented, stamp
from planner.frameworks.launch_scripts import exports, framework
from planner.frameworks.rank_map import hosts
from planner.frameworks.target import target

FILE_NAME = "launch.sh"


def export_torchrun(job: Job) -> dict[str, str]:
    """The script, by its name.

    Raises:
        ExportError: the framework cannot express the plan, or torchrun its places: it numbers ranks
            host after host.
    """
    found, arguments, passed = framework(job)
    if not found.as_counted:
        raise ExportError(
            "torchrun numbers ranks host after host, and no order of the software's places them as "
            "planned; expressible: search.orders=framework, or the target slurm"
        )
    where = hosts(job)
    return {
        FILE_NAME: "\n".join(
            [
                "#!/usr/bin/env bash",
                *commented(stamp(job, target("torchrun"))),
                f"# use, on each of the {where.number} hosts: NODE_RANK=<its number from 0, hosts "
                "of one domain in a row>",
                f"# MASTER_ADDR=<host 0> ./{FILE_NAME} PROGRAM.py [ARGUMENT...]",
                "set -euo pipefail",
                ': "${NODE_RANK:?the number of this host, from 0}"',
                ': "${MASTER_ADDR:?name or address of host 0}"',
                *exports(job, where),
                *arguments,
                "exec torchrun \\",
                f"  --nnodes={where.number} --nproc-per-node={where.ranks_each} \\",
                '  --node-rank="$NODE_RANK" --rdzv-backend=static \\',
                '  --master-addr="$MASTER_ADDR" --master-port="${MASTER_PORT:-29500}" \\',
                f'  "$@"{passed}',
                "",
            ]
        )
    }
