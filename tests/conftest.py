import os

import hypothesis
import pytest
from small_worlds import linear_log, linear_pool, linear_system  # noqa: F401


@pytest.fixture(autouse=True)
def _own_pool_cache(tmp_path_factory, monkeypatch):
    """Tests share one cache of pools for the session and never touch the user's."""
    monkeypatch.setenv("PHYB_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def pytest_configure(config):
    # Two workers with two compute threads each would fight for the cores of a small machine; and most of what is
    # compiled here runs once, so that optimising it takes longer than it saves.
    if os.environ.get("PYTEST_XDIST_WORKER"):
        os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0")

    # The same examples in every run, so that a red suite means a change; --hypothesis-profile=explore draws new ones.
    hypothesis.settings.register_profile("repeatable", derandomize=True)
    hypothesis.settings.register_profile("explore", derandomize=False)
    if not config.getoption("--hypothesis-profile"):
        hypothesis.settings.load_profile("repeatable")
