"""What drivers of parsers have in common: JSON lines in, an answer or an error a line out.

A driver calls `keep_stdout_for_answers()` before it imports the libraries that print.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MAX_PRINTED = 600
"""Characters told of what a parser printed before it gave up."""

_stdout = sys.stdout


def keep_stdout_for_answers() -> None:
    """From here on what libraries print goes to stderr, and warnings nowhere."""
    global _stdout
    warnings.simplefilter("ignore")
    _stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)


def serve(answer: Callable[[Any], Any]) -> None:
    """Answer the jobs of standard input; what libraries print is told where they exit."""
    for line in sys.stdin:
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                reply = answer(json.loads(line))
        except (Exception, SystemExit) as error:
            text = printed.getvalue()[-MAX_PRINTED:] if isinstance(error, SystemExit) else ""
            reply = {"error": f"{type(error).__name__}: {error} {text}".strip()}
        print(json.dumps(reply), file=_stdout, flush=True)


def mesh_groups(
    mesh: Any, axes: Sequence[str], groups: Mapping[str, Sequence[str]], rank: int
) -> dict[str, list[int]]:
    """Of each group, by the axes of a mesh that it spans, the members that a rank has there.

    mesh: a tensor of ranks, one dimension an axis; axes that it lacks have one member.
    """
    members = {}
    for group, spanned in groups.items():
        kept = [axes.index(axis) for axis in spanned if axis in axes]
        others = [i for i in range(len(axes)) if i not in kept]
        size = 1
        for i in kept:
            size *= mesh.shape[i]
        rows = mesh.permute(*others, *kept).reshape(-1, size).tolist()
        members[group] = sorted(next(row for row in rows if rank in row))
    return members
