"""What drivers of parsers have in common: JSON lines in, an answer or an error a line out."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Callable
from typing import Any, TextIO

MOST_SAID = 600
"""Characters told of what a parser said before it gave up."""


def serve(answer: Callable[[Any], Any], to: TextIO) -> None:
    """Answer the jobs of standard input; what libraries say meanwhile is told where they exit."""
    for line in sys.stdin:
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                found = answer(json.loads(line))
        except (Exception, SystemExit) as error:
            text = said.getvalue()[-MOST_SAID:] if isinstance(error, SystemExit) else ""
            found = {"error": f"{type(error).__name__}: {error} {text}".strip()}
        print(json.dumps(found), file=to, flush=True)
