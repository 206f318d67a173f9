"""torchrun's own argument parser: JSON lines {argv} in, {values} or {error} out."""

from __future__ import annotations

import contextlib
import io
import json
import sys

from torch.distributed.run import get_args_parser


def main() -> None:
    for line in sys.stdin:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                found = {"values": vars(get_args_parser().parse_args(json.loads(line)["argv"]))}
        except SystemExit:
            found = {"error": said.getvalue()}
        print(json.dumps(found), flush=True)


main()
