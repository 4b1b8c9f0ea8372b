"""Parts of the report on their own: reading, axes, colours, and the map of the liquidation policy."""

import itertools
import math

import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phyb.envs.liquidation import DEFAULT_SPEC, initial_states, transition
from phyb.envs.oracle import solve
from phyb.networks import Standardizer
from phyb.report.elements import duration, show
from phyb.report.figures import curve_panel, mean_by_rank
from phyb.report.html import DARK
from phyb.report.policy_map import map_policy, price_law
from phyb.report.pool_figures import calibration_panel, worst_calibrated
from phyb.report.style import COLORS, log_ticks, short_number
from phyb.training.records import series, thinned


@given(st.floats(1e-12, 1e12), st.floats(10.1, 1e12))
def test_log_axes_have_a_few_ticks_within_the_values(low, ratio):
    ticks = log_ticks(low, low * ratio)
    assert 2 <= len(ticks) <= 6
    assert all(low / 1.3 <= tick <= low * ratio * 1.3 for tick in ticks)


def test_numbers_are_written_as_people_read_them():
    assert [short_number(x) for x in (0, 0.25, 1500, 20_000, 3e6, -2.5)] == ["0", "0.25", "1.5k", "20k", "3M", "−2.5"]
    assert [show(None), show(-1234.567, 1), show(0.5, 0, " %")] == ["–", "−1,234.6", "0 %"]
    assert [duration(x) for x in (None, 3.21, 61.0, 7260.0)] == ["–", "3.2 s", "1 min 1 s", "2 h 1 min"]


def test_series_skip_what_is_not_a_number_and_thinning_keeps_the_mean():
    lines = [{"step": i, "x": value} for i, value in enumerate([1.0, None, math.nan, "x", 5, True])]
    steps, values = series(lines, "x")
    assert steps.tolist() == [0, 4]
    assert values.tolist() == [1, 5]
    steps, values = thinned(np.arange(3000.0), np.sin(np.arange(3000.0)), points=100)
    assert len(steps) == len(values) == 100
    assert steps.mean() == pytest.approx(1499.5)
    assert values.mean() == pytest.approx(np.sin(np.arange(3000.0)).mean())


def test_pictures_take_their_colours_from_the_page_and_leave_no_trace():
    before = dict(matplotlib.rcParams)
    lines = [{"step": i, "x": 2.0**i, "error": 0.1} for i in range(9)]
    panel = curve_panel(lines, [("x", "X", "true")], title="T", unit="u", log=True, spread={"x": "error"})
    assert panel is not None
    assert dict(matplotlib.rcParams) == before
    assert "var(--true)" in panel.svg
    assert "var(--muted)" in panel.svg
    assert not any(color in panel.svg for color in COLORS.values())
    assert panel.alt == "T, u over updates: X from 1 to 256."


def test_a_curve_of_one_point_and_a_curve_of_none():
    assert curve_panel([{"step": 5, "x": 1.0}], [("x", "X", "true")], title="T", unit="u") is not None
    assert curve_panel([{"step": 5}], [("x", "X", "true")], title="T", unit="u") is None


def test_ranks_are_averaged_over_the_last_quarter_and_broken_lines_left_out():
    lines = [{"step": i, "w": [float(i), 0.0]} for i in range(8)] + [
        {"step": 9, "w": None},
        {"step": 10, "w": [None, 1]},
    ]
    assert mean_by_rank(lines, "w").tolist() == [6.5, 0.0]
    assert mean_by_rank([], "w").tolist() == []


def test_the_worst_calibrated_outputs_are_shown_in_their_order():
    squares = [1.0, 9.0, None, 0.1, 1.1]
    dimensions = [{"name": str(i), "standardised_squared_error": s} for i, s in enumerate(squares)]
    assert [d["name"] for d in worst_calibrated(dimensions, 2)] == ["1", "3"]
    assert calibration_panel({"bins": [{"predicted_std": 0.0, "observed_rmse": 0.0}]}, "still") is not None
    assert calibration_panel({"bins": []}, "none") is None


class Oracle:
    """The best policy, disguised as a learned one."""

    standardizer = Standardizer(jnp.zeros(3), jnp.ones(3))
    action_low = jnp.array([-1.0])

    def __init__(self, shift=0.0):
        self.shift = shift

    def act(self, observations):
        return solve().action(observations - np.array([0, 0, self.shift], np.float32))


def test_the_best_policy_agrees_with_the_boundary_and_a_shifted_one_does_less():
    best = map_policy(Oracle())  # pyright: ignore[reportArgumentType]
    shifted = map_policy(Oracle(0.3))  # pyright: ignore[reportArgumentType]
    assert best is not None
    assert shifted is not None
    assert best.agreement > 0.999
    assert best.sold.shape == (DEFAULT_SPEC.horizon, len(best.prices))
    assert 0.7 < shifted.agreement < 0.97


def test_the_price_law_is_that_of_the_simulator():
    rng = np.random.default_rng(0)
    states = initial_states(rng.standard_normal(20_000))
    mean, std = price_law()
    for time in range(DEFAULT_SPEC.horizon):
        assert states[:, 2].mean() == pytest.approx(mean[time], abs=0.03)
        assert states[:, 2].std() == pytest.approx(std[time], rel=0.05)
        states, _, _ = transition(states, np.zeros((len(states), 1)), rng.standard_normal(len(states)))


CONFUSION = {
    "usual sight": np.eye(3),
    "no red cones": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "no green cones": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
    "no blue cones": [[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]],
}
"""What linear RGB turns into with a kind of cones missing (Machado, Oliveira and Fernandes, 2009)."""


def lab(color, sight):
    code = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(code <= 0.04045, code / 12.92, ((code + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(np.array(sight) @ linear, 0, 1) / to_xyz.sum(axis=1)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("palette", [COLORS, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("sight", CONFUSION)
def test_colours_of_curves_differ_for_every_kind_of_sight(palette, sight):
    curves = ["true", "belief", "optimum", "behaviour", "extra"]
    seen = [lab(palette[name], CONFUSION[sight]) for name in curves]
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2)) > 20
