"""A software profile with fitted coefficients as the text of a file of software/."""

import json
import re

from planner.evidence.fabric_file import written_name, written_value
from planner.evidence.fits.software import Fitted
from planner.inputs.files import names, resolve
from planner.inputs.values import load
from planner.problem.software import Software


def profile_yaml(fitted: Fitted, name: str | None = None) -> str:
    """The shipped file of the profile with its fitted coefficients, and another name if given.

    Nothing else changes, remarks included; the text reads back to an equal value. Of a profile that
    does not ship, or was changed, the value itself is written.
    """
    if not _ships(fitted.software):
        document = fitted.tuned.replace(name=name or fitted.software.name).model_dump(
            mode="json", by_alias=True
        )
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"  # YAML too
    shipped = resolve("software", fitted.software.name).read_text("utf-8")
    software = fitted.tuned
    exact = software.coefficients.model_dump(mode="json")
    text = _put(shipped, "name", written_name(name or software.name))
    for key in fitted.determined:
        figure = getattr(software.coefficients, key)
        value = written_value(figure, exact[key]["value"])
        source = json.dumps(figure.source, ensure_ascii=False)
        text = _put(text, f"  {key}", f"{{value: {value}, source: {source}, status: fitted}}")
    return text


def _ships(software: Software) -> bool:
    return software.name in names("software") and (
        load(software.name, "software", Software) == software
    )


def _put(text: str, key: str, value: str) -> str:
    """The text with another value of a key that stands on one line of its own."""
    changed, count = re.subn(rf"(?m)^{key}: .*$", lambda _: f"{key}: {value}", text)
    if count != 1:
        raise AssertionError(f"{key} does not stand once on a line of its own")
    return changed
