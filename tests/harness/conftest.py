"""Two tiny runs, of M = 1 and M = 3, for the tests of the harness."""

from __future__ import annotations

import pytest

from lkf_plugin.runs.load import LoadedRun
from tests.evaluate.small_run import tiny_run


@pytest.fixture(scope="session", params=[1, 3], ids=lambda M: f"M{M}")
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    return tiny_run(tmp_path_factory.mktemp("harness"), request.param)
