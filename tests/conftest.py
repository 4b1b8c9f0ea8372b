import os
import shutil
import tempfile

import hypothesis
import jax
import pytest
from small_worlds import linear_log, linear_pool, linear_system  # noqa: F401

XLA_FLAGS = "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
MANY_PROGRAMS = 500
compiled = [0]
"""How many programs this process has compiled since it last forgot them all."""


@pytest.fixture(autouse=True)
def _own_pool_cache(tmp_path_factory, monkeypatch):
    """Tests share one cache of pools for the session and never touch the user's."""
    monkeypatch.setenv("PHYB_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(autouse=True, scope="module")
def _few_programs():
    """Some thousand compiled programs in one process take gigabytes, and in the end XLA's compiler crashes."""
    yield
    if compiled[0] > MANY_PROGRAMS:
        jax.clear_caches()
        compiled[0] = 0


def _count_programs(event, duration_secs, **kwargs):
    compiled[0] += event.endswith("backend_compile_duration")


def pytest_configure(config):
    # Two workers with two compute threads each would fight for the cores of a small machine; and most of what is
    # compiled here runs once, so that optimising it takes longer than it saves.
    if os.environ.get("PYTEST_XDIST_WORKER"):
        os.environ.setdefault("XLA_FLAGS", XLA_FLAGS)

    # Workers and their child processes share what they compile. Whoever sets the variable keeps it between sessions.
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = tempfile.mkdtemp(prefix="phyb-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.monitoring.register_event_duration_secs_listener(_count_programs)

    # The same examples in every run, so that a red suite means a change; --hypothesis-profile=explore draws new ones.
    hypothesis.settings.register_profile("repeatable", derandomize=True)
    hypothesis.settings.register_profile("explore", derandomize=False)
    if not config.getoption("--hypothesis-profile"):
        hypothesis.settings.load_profile("repeatable")
