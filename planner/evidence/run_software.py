"""Which software profile a published run maps to: by its framework, and by what it ran without."""

import re
from functools import cache

from planner.evidence.published_runs import PublishedRun, UnscorableError
from planner.inputs.files import names
from planner.inputs.values import load
from planner.problem.hardware import folded
from planner.problem.software import Software

UNCOMPILED = {"torchtitan": "torchtitan-eager"}
"""Profile → the profile of its rows whose `torch_compile` is false."""

EAGER_NORM = "fused rmsnorm kernel off"
"""What a row's notes say where norms run operator by operator."""


def profile_of(run: PublishedRun) -> Software:
    """Return the profile of the row's framework, but for compiler or fused norms it ran without.

    Raises:
        UnscorableError: no framework is named, or none of the shipped profiles stands for it.
    """
    if run.framework is None:
        raise UnscorableError("framework unknown")
    software = software_of(run.framework)
    if (run.overlap or {}).get("torch_compile") is False and software.name in UNCOMPILED:
        return _profile(UNCOMPILED[software.name])
    if EAGER_NORM in (run.notes or "").casefold():
        return _with_eager_norms(software.name)
    return software


@cache
def software_of(framework: str) -> Software:
    """Return the shipped profile whose frameworks name this one.

    The whole text counts first, then the longest part of it, from its start, that ends before
    white space or punctuation ("Megatron-LM core_r0.13 (TE)" is Megatron-LM).
    """
    ends = [match.start() for match in re.finditer(r"[\s(/,+]", framework)]
    for end in [len(framework), *reversed(ends)]:
        profile = _profiles().get(folded(framework[:end]))
        if profile:
            return profile
    raise UnscorableError(f"framework '{framework}' maps to no software profile")


@cache
def _profiles() -> dict[str, Software]:
    """Return the shipped profiles by the folded names of the frameworks they stand for."""
    return {
        folded(name): found
        for found in map(_profile, names("software"))
        for name in found.frameworks
    }


@cache
def _profile(name: str) -> Software:
    return load(name, "software", Software)


@cache
def _with_eager_norms(name: str) -> Software:
    return _profile(name).replace(eager_norm=True)
