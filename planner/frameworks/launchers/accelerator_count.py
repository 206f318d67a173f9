"""How many accelerators a launch script names, in the words of its launcher and of Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from planner.frameworks.script import AcceleratorCount, integer_of
from planner.frameworks.shell.expand import ShellScript
from planner.frameworks.shell.words import Word

HOSTS = ("--nnodes", "--num-nodes", "--nodes", "-N")
PER_HOST = ("--nproc-per-node", "--gpus-per-node", "--num-gpus", "--gres", "--ntasks-per-node")
TOTAL = ("--num-processes", "--ntasks", "-n")
"""Names of torchrun, deepspeed, accelerate, srun and sbatch; the first given of each counts."""

LAUNCHER_OPTIONS = {
    *HOSTS, *PER_HOST, *TOTAL, "--node-rank", "--master-addr", "--master-port", "--rdzv-backend",
    "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf", "--max-restarts", "--tee", "--log-dir",
    "--local-ranks-filter", "--role", "--distribution", "--machine-rank", "--main-process-ip",
    "--main-process-port", "--num-machines", "--config-file", "--hostfile", "--exclusive",
    "--segment", "--switches", "--job-name", "--redirects", "--standalone", "--cpu-bind",
    "--mpi", "--kill-on-bad-exit", "--container-image", "--container-mounts",
}  # fmt: skip
"""Options of launchers, which are no settings of a framework."""

TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")

MAX_COUNT = 10**7


@dataclass(frozen=True, slots=True)
class Option:
    """A count that an option gives, and the word that it stands in."""

    name: str
    count: int
    word: Word


def accelerator_count(words: Sequence[Word], script: ShellScript) -> AcceleratorCount:
    """The count that a command and the #SBATCH lines name, as far as they do."""
    given = dict(_counts([*script.options, *words]))
    hosts, per_host, total = (_first(given, names) for names in (HOSTS, PER_HOST, TOTAL))
    runs_torchrun = any(word.text.rpartition("/")[2] in TORCHRUN for word in words)
    # options that come from outside may name a count
    complete = not any(w.why and not before.text.startswith("-") for before, w in pairwise(words))
    if runs_torchrun and complete:
        default = Option("torchrun", 1, words[0])
        hosts = hosts or (default if not any(name in given for name in HOSTS) else None)
        per_host = per_host or (default if not any(name in given for name in PER_HOST) else None)
    if hosts is not None or runs_torchrun:
        total = None  # tasks are hosts' launchers, or follow from them
    used = [option for option in (hosts, per_host, total) if option is not None]
    if not used:
        return AcceleratorCount()
    return AcceleratorCount(
        hosts=hosts.count if hosts else None,
        per_host=per_host.count if per_host else None,
        total=total.count if total else None,
        settings=tuple(dict.fromkeys(option.name for option in used)),
        line=min(option.word.line for option in used),
        overridable=any(option.word.overridable for option in used),
    )


def _first(given: Mapping[str, tuple[int | None, Word]], names: Sequence[str]) -> Option | None:
    """The first of some options that is given; None where its value is not known."""
    for name in names:
        if name in given:
            count, word = given[name]
            return None if count is None else Option(name, count, word)
    return None


def _counts(words: Sequence[Word]) -> Iterator[tuple[str, tuple[int | None, Word]]]:
    """Options that name a count, the count where it is known, and the word it stands in."""
    for word, after in zip(words, [*words[1:], None], strict=True):
        name, equals, text = word.text.partition("=")
        short = re.fullmatch(r"(-[Nn])(\d+)", word.text)
        value: Word | None = word if equals or short else after
        if short:
            name, text = short[1], short[2]
        elif not equals:
            text = after.text if after else ""
        name = name.replace("_", "-")
        # --gres=gpu:h100:8 has its count last
        if name in (*HOSTS, *PER_HOST, *TOTAL) and value is not None:
            number = integer_of(text.rpartition(":")[2] if name == "--gres" else text)
            known = value.why is None and number is not None and 1 <= number <= MAX_COUNT
            yield name, (number if known else None, value)
