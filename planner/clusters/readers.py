"""Which format a file of a cluster has, by its content, and its reading."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from planner.clusters import domain_lists, ibnetdiscover, nccl_topology, slurm_topology
from planner.clusters import kubernetes as node_labels
from planner.clusters import nvidia_smi as smi_topology
from planner.clusters.cluster_facts import Reading, cluster_text
from planner.errors import InputError, nearest_of
from planner.inputs.yaml_text import read_yaml

FORMATS: Mapping[str, Callable[[str, str], Reading]] = {
    "topo-m": smi_topology.read,
    "nccl-xml": nccl_topology.read,
    "slurm-conf": slurm_topology.read_topology_conf,
    "slurm-yaml": slurm_topology.read_topology_yaml,
    "ibnetdiscover": ibnetdiscover.read,
    "kubernetes": node_labels.read,
    "addresses": domain_lists.read_list,
    "map": domain_lists.read_map,
    "inventory": domain_lists.read_inventory,
}
"""Formats by the name that `--format` takes."""

_SLURM = re.compile(r"^\s*(SwitchName|BlockName|BlockSizes)\s*=", re.IGNORECASE | re.MULTILINE)


def read_file(path: str | Path, format_: str | None = None) -> Reading:
    """What a file says; without a format its content tells which it is.

    Raises:
        InputError: unreadable, of no format or of several, or wrong in its format.
    """
    text = cluster_text(path)
    if format_ is None:
        format_ = recognise(text, str(path))
    if format_ not in FORMATS:
        raise InputError(
            "no format of that name", value=format_, allowed=", ".join(FORMATS),
            nearest=nearest_of(format_, FORMATS),
        )  # fmt: skip
    return FORMATS[format_](text, str(path))


def recognise(text: str, path: str) -> str:
    """The name of the format that the text is in.

    Raises:
        InputError: none, or more than one.
    """
    if text.lstrip().startswith("<"):
        return "nccl-xml"
    found = [
        name
        for name, is_it in (
            ("topo-m", smi_topology.looks_like),
            ("ibnetdiscover", ibnetdiscover.looks_like),
            ("slurm-conf", lambda t: _SLURM.search(t) is not None),
        )
        if is_it(text)
    ]
    if not found:
        found = _tree(text) or (["addresses"] if domain_lists.looks_like_a_list(text) else [])
    if len(found) == 1:
        return found[0]
    if not found and text.lstrip()[0] in "{[":
        read_yaml(text, path)  # says where it is not JSON
    reason = f"may be {' or '.join(found)}" if found else "is in no format that is known"
    raise InputError(
        reason, path=path, allowed=f"--format NAME, one of {', '.join(FORMATS)}"
    )  # fmt: skip


def _tree(text: str) -> list[str]:
    """Formats in YAML or JSON, by the keys of the first document."""
    try:
        root = next(node_labels.documents(text, ""), None)
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
    if domain_lists.looks_like_a_list(text) and not any(
        isinstance(child.value, Mapping) for child in root.value.values()
    ):
        return ["addresses"]  # `node: SLURM_TOPOLOGY_ADDR=...` reads as YAML too
    return ["map"]
