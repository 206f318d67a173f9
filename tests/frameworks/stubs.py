"""Commands of a cluster played by small scripts, so that launch scripts can be run for real."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCONTROL = r"""#!/bin/bash
case "$1 $2" in
  "show hostnames") for h in ${3//,/ }; do echo "$h"; done ;;
  "show topology") cat "$STUBS/topology" ;;
esac
"""

# blocks: rank r on host r / per; arbitrary: line r of the host file. Ranks are run one by one.
SRUN = r"""#!/bin/bash
printf '%s\0' "$@" > "$STUBS/srun-$(ls "$STUBS" | grep -c srun-)"
IFS=, read -ra hosts <<< "$SLURM_JOB_NODELIST"
while [[ $1 == --* ]]; do
  case $1 in
    --ntasks=*) n=${1#*=} ;; --ntasks-per-node=*) per=${1#*=} ;; --distribution=*) how=${1#*=} ;;
  esac
  shift
done
[[ $how == arbitrary ]] && mapfile -t file < "$SLURM_HOSTFILE"
declare -A local
for ((r = 0; r < n; r++)); do
  if [[ $how == arbitrary ]]; then host=${file[r]}; else host=${hosts[r / per]}; fi
  [[ -e $STUBS/misplace && $r == "$(cat "$STUBS/misplace")" ]] && host=elsewhere
  SLURM_PROCID=$r SLURM_NTASKS=$n SLURM_LOCALID=${local[$host]:-0} SLURMD_NODENAME=$host \
    "$@" || exit
  local[$host]=$((${local[$host]:-0} + 1))
done
"""

PROGRAM = r"""#!/bin/bash
printf '%s\0' "$RANK" "$LOCAL_RANK" "$WORLD_SIZE" "$MASTER_ADDR" "$SLURMD_NODENAME" "$@" \
  > "$STUBS/ran-$RANK"
"""

TORCHRUN = r"""#!/bin/bash
printf '%s\0' "$@" > "$STUBS/torchrun-called"
"""


def make(folder: Path, topology: str = "") -> Path:
    """A folder of commands, ahead of the real ones on PATH."""
    for name, text in (
        ("scontrol", SCONTROL), ("srun", SRUN), ("program", PROGRAM), ("torchrun", TORCHRUN),
    ):  # fmt: skip
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "topology").write_text(topology)
    return folder


def run(
    stubs: Path, script: str, *arguments: str, hosts: int = 1, **more: str
) -> subprocess.CompletedProcess[str]:
    """A launch script run in its own folder, with the stubs for a cluster."""
    file = stubs / "script.sh"
    file.write_text(script, encoding="utf-8")
    return subprocess.run(
        ["bash", str(file), *arguments],
        cwd=stubs, capture_output=True, text=True, timeout=120,
        env={
            "PATH": f"{stubs}:{os.environ['PATH']}", "STUBS": str(stubs),
            "SLURM_JOB_NODELIST": ",".join(f"h{i}" for i in range(hosts)), **more,
        },
    )  # fmt: skip


def words(path: Path) -> list[str]:
    """The words a stub was called with."""
    return path.read_bytes().decode().split("\0")[:-1]
