"""A search that answers at once, for all commands that plan."""

from __future__ import annotations

import pytest

from planner import api
from tests.report.fabricated import fabricated_plan


@pytest.fixture
def planned(monkeypatch):
    """`plan` answers with a fabricated plan; what it was asked is recorded."""
    asked = {}

    def plan(scenario, top_k, time_limit_seconds, watch):
        asked.update(scenario=scenario, top_k=top_k, time_limit=time_limit_seconds)
        return fabricated_plan()

    monkeypatch.setattr(api, "plan", plan)
    return asked
