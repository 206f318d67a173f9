"""Shipped accelerators and software profiles by the names that measurements give them."""

from __future__ import annotations

import re
from functools import cache

from planner.inputs.files import names, read, resolve
from planner.inputs.values import load
from planner.problem.hardware import Accelerator, folded
from planner.problem.software import Software


def accelerator_named(name: str) -> Accelerator | None:
    """The shipped accelerator type of this name or alias; case and punctuation do not matter."""
    return _accelerator(folded(name))


@cache
def _accelerator(folded_name: str) -> Accelerator | None:
    for shipped in names("accelerator"):
        path = resolve("accelerator", shipped)
        # reading YAML takes a hundred times as long as looking for the name in its text
        if folded_name not in folded(path.read_text("utf-8")):
            continue
        raw = read(path).plain()
        if folded_name in map(folded, (raw["name"], *raw.get("aliases", ()))):
            return load(shipped, "accelerator", Accelerator)
    return None


@cache
def software_named(framework: str) -> Software | None:
    """The shipped profile that stands for a framework.

    The full text counts first, then the longest beginning of it that ends before white space or
    punctuation: "Megatron-LM core_r0.13 (TE)" is Megatron-LM.
    """
    lengths = [match.start() for match in re.finditer(r"[\s(/,+]", framework)]
    for length in [len(framework), *reversed(lengths)]:
        profile = _profiles().get(folded(framework[:length]))
        if profile:
            return profile
    return None


@cache
def _profiles() -> dict[str, Software]:
    """The shipped profiles by the folded names of the frameworks they stand for."""
    return {
        folded(framework): profile
        for profile in map(shipped_profile, names("software"))
        for framework in profile.frameworks
    }


@cache
def shipped_profile(name: str) -> Software:
    """The shipped profile of that name, read once: rows of one profile share one value."""
    return load(name, "software", Software)
