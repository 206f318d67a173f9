"""Coefficients of matrix products written into the text of an accelerator's file."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from planner.evidence.fabric_file import figure_lines
from planner.problem.hardware import GemmCoefficients
from planner.problem.precision import Precision


def with_gemm(file: Path, gemm: Mapping[Precision, GemmCoefficients]) -> str:
    """The file's text with other coefficients for some precisions; all else stays as it stands."""
    from ruamel.yaml import YAML  # imported here: it takes 0.1 s

    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 2**16  # lines stay as long as they are
    document = yaml.load(file.read_text("utf-8"))
    for precision, coefficients in gemm.items():
        document["gemm"][precision] = yaml.load("\n".join(figure_lines(coefficients)))
    text = io.StringIO()
    yaml.dump(document, text)
    return text.getvalue()
