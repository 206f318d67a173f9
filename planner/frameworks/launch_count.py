"""How many accelerators a launch script names, in the words of its launcher and of Slurm."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from planner.frameworks.launch import Count, whole_number
from planner.frameworks.shell.expand import Script
from planner.frameworks.shell.words import Word

HOSTS = ("--nnodes", "--num-nodes", "--nodes", "-N")
EACH = ("--nproc-per-node", "--gpus-per-node", "--num-gpus", "--gres", "--ntasks-per-node")
TOTAL = ("--num-processes", "--ntasks", "-n")
"""Names of torchrun, deepspeed, accelerate, srun and sbatch; the first found of each counts."""

LAUNCHER = {
    *HOSTS, *EACH, *TOTAL, "--node-rank", "--master-addr", "--master-port", "--rdzv-backend",
    "--rdzv-endpoint", "--rdzv-id", "--rdzv-conf", "--max-restarts", "--tee", "--log-dir",
    "--local-ranks-filter", "--role", "--distribution", "--machine-rank", "--main-process-ip",
    "--main-process-port", "--num-machines", "--config-file", "--hostfile", "--exclusive",
    "--segment", "--switches", "--job-name", "--redirects", "--standalone", "--cpu-bind",
    "--mpi", "--kill-on-bad-exit", "--container-image", "--container-mounts",
}  # fmt: skip
"""Options of launchers, which are no settings of a framework."""

PLACED_BY_TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")


def count_of(words: Sequence[Word], script: Script) -> Count:
    """The count that a command and the #SBATCH lines name, as far as they do."""
    given = dict(_options([*script.options, *words]))
    hosts, each, total = (_first(given, names) for names in (HOSTS, EACH, TOTAL))
    runs_torchrun = any(word.text.rpartition("/")[2] in PLACED_BY_TORCHRUN for word in words)
    # options that come from outside may name a count
    silent = runs_torchrun and not any(
        word.why and not before.text.startswith("-") for before, word in pairwise(words)
    )
    if hosts is None and silent and not any(name in given for name in HOSTS):
        hosts = ("torchrun", 1, words[0])  # its default
    if each is None and silent and not any(name in given for name in EACH):
        each = ("torchrun", 1, words[0])
    known = [option for option in (hosts, each, total) if option is not None]
    if not known:
        return Count()
    if hosts is not None or runs_torchrun:
        total = None  # tasks are hosts' launchers, or follow from them
    used = [option for option in (hosts, each, total) if option is not None]
    return Count(
        hosts=hosts[1] if hosts else None,
        each=each[1] if each else None,
        total=total[1] if total else None,
        settings=tuple(dict.fromkeys(option[0] for option in used)),
        line=min(option[2].line for option in used),
        outside=any(option[2].outside for option in used),
    )


Option = tuple[str, int, Word]


def _first(given: dict[str, tuple[int | None, Word]], names: Sequence[str]) -> Option | None:
    """The first of some options that is given; unknown where its value is."""
    for name in names:
        if name in given:
            value, word = given[name]
            return None if value is None else (name, value, word)
    return None


def _options(words: Sequence[Word]) -> Iterator[tuple[str, tuple[int | None, Word]]]:
    for word, after in zip(words, [*words[1:], None], strict=True):
        name, equals, text = word.text.partition("=")
        short = re.fullmatch(r"(-[Nn])(\d+)", word.text)
        value: Word | None = word if equals or short else after
        if short:
            name, text = short[1], short[2]
        elif not equals:
            text = after.text if after else ""
        name = name.replace("_", "-")
        if name in (*HOSTS, *EACH, *TOTAL) and value is not None:
            number = whole_number(text.rpartition(":")[2] if name == "--gres" else text)
            known = value.why is None and number is not None and 1 <= number <= 10**7
            yield name, (number if known else None, value)
