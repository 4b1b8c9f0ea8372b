"""Tests here compile many programs and run each for a moment: compiling fast matters more than fast programs."""

import jax
import pytest


@pytest.fixture(scope="package", autouse=True)
def _compile_briefly():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
