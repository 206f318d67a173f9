"""Which format a file of a cluster has, by its content, and its reading."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from planner.clusters import (
    ibnetdiscover,
    kubernetes,
    nccl_xml,
    node_lists,
    nvidia_smi,
    slurm_topology,
)
from planner.clusters.reading import Reading, cluster_text
from planner.errors import InputError, nearest_of
from planner.inputs.yaml_text import read_yaml

FORMATS: Mapping[str, Callable[[str, str], Reading]] = {
    "topo-m": nvidia_smi.read,
    "nccl-xml": nccl_xml.read,
    "slurm-conf": slurm_topology.read_topology_conf,
    "slurm-yaml": slurm_topology.read_topology_yaml,
    "ibnetdiscover": ibnetdiscover.read,
    "kubernetes": kubernetes.read,
    "addresses": node_lists.read_list,
    "map": node_lists.read_map,
    "inventory": node_lists.read_inventory,
}
"""Formats by the name that `--format` takes → reader of (text, path)."""

_SLURM = re.compile(r"^\s*(SwitchName|BlockName|BlockSizes)\s*=", re.IGNORECASE | re.MULTILINE)


def read_file(path: str | Path, format_: str | None = None) -> Reading:
    """Return what a file says; without a format its content tells which it is.

    Raises:
        InputError: unreadable, of no format or of several, or wrong in its format.
    """
    text = cluster_text(path)
    if format_ is None:
        format_ = recognised(text, str(path))
    if format_ not in FORMATS:
        raise InputError(
            "no format of that name", value=format_, allowed=", ".join(FORMATS),
            nearest=nearest_of(format_, FORMATS),
        )  # fmt: skip
    return FORMATS[format_](text, str(path))


def recognised(text: str, path: str) -> str:
    """Return the name of the format that the text is in.

    Raises:
        InputError: none, or more than one.
    """
    if text.lstrip().startswith("<"):
        return "nccl-xml"
    checks: Mapping[str, Callable[[str], bool]] = {
        "topo-m": nvidia_smi.looks_like,
        "ibnetdiscover": ibnetdiscover.looks_like,
        "slurm-conf": lambda text: _SLURM.search(text) is not None,
    }
    candidates = [name for name, is_it in checks.items() if is_it(text)]
    if not candidates:
        candidates = _yaml_formats(text)
    if not candidates and node_lists.looks_like_a_list(text):
        candidates = ["addresses"]
    if len(candidates) == 1:
        return candidates[0]
    if not candidates and text.lstrip()[0] in "{[":
        read_yaml(text, path)  # raises the error that says where it is not JSON
    reason = f"may be {' or '.join(candidates)}" if candidates else "is in no format that is known"
    raise InputError(reason, path=path, allowed=f"--format NAME, one of {', '.join(FORMATS)}")


def _yaml_formats(text: str) -> list[str]:
    """Return the formats in YAML or JSON that the keys of the first document allow."""
    try:
        root = next(kubernetes.documents(text, ""), None)
    except InputError:
        return []
    if root is None:
        return []
    if isinstance(root.value, tuple):
        return ["slurm-yaml"] if root.value and root.value[0].child("topology") else []
    if not isinstance(root.value, Mapping):
        return []
    if {"kind", "apiVersion"} & root.value.keys():
        return ["kubernetes"]
    if {"tiers", "nodes"} <= root.value.keys():
        return ["inventory"]
    if node_lists.looks_like_a_list(text) and not any(
        isinstance(child.value, Mapping) for child in root.value.values()
    ):
        return ["addresses"]  # `node: SLURM_TOPOLOGY_ADDR=...` reads as YAML too
    return ["map"]
