"""The liquidation task: sell a holding of currency in limited time, at a price that reverts to its mean."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jaxtyping import Bool, Float

ENV_ID = "phyb/Liquidation-v0"


@dataclasses.dataclass(frozen=True)
class LiquidationSpec:
    """The constants of the market. The defaults are the task of the paper."""

    horizon: int = 20
    """Steps after which the episode ends; what is unsold then is worth nothing."""
    initial_holding: float = 100.0
    """Units to sell."""
    initial_price_mean: float = 1.0
    """Mean of the Gaussian first price."""
    initial_price_std: float = 0.05
    """Standard deviation of the first price."""
    reversion: float = 0.05
    """Share of the distance to the long-run price that the price makes up in one step."""
    long_run_price: float = 1.5
    """The price the market drifts to."""
    volatility: float = 0.2
    """Standard deviation of the noise added to the price in one step."""
    price_max: float = 5.0
    """Prices are clipped to [0, price_max]."""
    sliver: float = 0.1
    """The episode ends when less than this is left to sell."""


DEFAULT_SPEC = LiquidationSpec()
"""The market of the paper."""


def initial_states(noise: Float[np.ndarray, " n"], spec: LiquidationSpec = DEFAULT_SPEC) -> Float[np.ndarray, "n 3"]:
    """First states (0, initial holding, price), in float32: price = clip(mean + std noise, 0, price_max)."""
    price = np.clip(spec.initial_price_mean + spec.initial_price_std * noise, 0.0, spec.price_max)
    time = np.zeros_like(price)
    return np.stack([time, time + spec.initial_holding, price], axis=1).astype(np.float32)


def has_ended(states: Any, spec: LiquidationSpec = DEFAULT_SPEC) -> Any:
    """True where a state is final: t >= horizon - 1/2, or holding < sliver. NumPy and JAX arrays alike."""
    return (states[..., 0] >= spec.horizon - 0.5) | (states[..., 1] < spec.sliver)


def transition(
    states: Float[np.ndarray, "n 3"],
    actions: Float[np.ndarray, "n 1"],
    noise: Float[np.ndarray, " n"],
    spec: LiquidationSpec = DEFAULT_SPEC,
) -> tuple[Float[np.ndarray, "n 3"], Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """One step of many independent episodes: next states, rewards, and whether each episode terminated.

    A state is (t, m, p): time, holding and price. With f = clip(a, 0, 1) and standard-normal noise e,

        reward = f m p
        t' = t + 1
        m' = (1 - f) m
        p' = clip(p + reversion (long_run_price - p) + volatility e, 0, price_max)

    and the episode terminates when t' reaches the horizon or m' < sliver. An action at or below 0 holds.
    """
    # States are rounded to float32 before the end is tested, so that a log of them is the simulator's own
    # state, bit for bit, and a rule applied to the log can never disagree with the simulator.
    time, holding, price = states.T.astype(np.float64)
    fraction = np.clip(actions[:, 0].astype(np.float64), 0.0, 1.0)
    rewards = fraction * holding * price
    drift = spec.reversion * (spec.long_run_price - price)
    next_price = np.clip(price + drift + spec.volatility * noise, 0.0, spec.price_max)
    next_states = np.stack([time + 1.0, (1.0 - fraction) * holding, next_price], axis=1).astype(np.float32)
    return next_states, rewards, has_ended(next_states, spec)


def _spaces(spec: LiquidationSpec) -> tuple[gymnasium.spaces.Box, gymnasium.spaces.Box]:
    high = np.array([spec.horizon, spec.initial_holding, spec.price_max], dtype=np.float32)
    return (
        gymnasium.spaces.Box(np.zeros(3, np.float32), high, dtype=np.float32),
        gymnasium.spaces.Box(-1.0, 1.0, shape=(1,), dtype=np.float32),
    )


def _checked(actions: Any, shape: tuple[int, ...] | None) -> np.ndarray:
    array = np.asarray(actions)
    if array.shape != shape:
        raise gymnasium.error.InvalidAction(f"expected an action of shape {shape}, got shape {array.shape}")
    return array


class LiquidationEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """One liquidation episode behind Gymnasium's interface; the observation is the state (t, m, p).

    The horizon is part of the task and time is part of the state, so reaching it is `terminated`, never
    `truncated`.
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, market: LiquidationSpec = DEFAULT_SPEC) -> None:
        self.market = market
        self.observation_space, self.action_space = _spaces(market)
        self._state: np.ndarray | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode with a fresh price."""
        super().reset(seed=seed, options=options)
        self._state = initial_states(self.np_random.standard_normal(1), self.market)
        return self._state[0].copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Sell the fraction clip(action, 0, 1) of the holding at the current price."""
        if self._state is None or has_ended(self._state, self.market)[0]:
            raise gymnasium.error.ResetNeeded("the episode has ended or not begun: call reset() first")
        actions = _checked(action, self.action_space.shape)[None]
        noise = self.np_random.standard_normal(1)
        self._state, rewards, terminated = transition(self._state, actions, noise, self.market)
        return self._state[0].copy(), float(rewards[0]), bool(terminated[0]), False, {}


class LiquidationVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Thousands of independent episodes in lock-step behind Gymnasium's vector interface.

    Autoreset is next-step: the step after an episode ended ignores the action, gives reward 0 and the first
    observation of the next episode. Each sub-environment uses exactly one standard-normal number per call.
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int = 1, market: LiquidationSpec = DEFAULT_SPEC) -> None:
        self.num_envs = num_envs
        self.market = market
        self.single_observation_space, self.single_action_space = _spaces(market)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._states: np.ndarray | None = None
        self._ended = np.zeros(num_envs, dtype=bool)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start all episodes anew."""
        super().reset(seed=seed, options=options)
        self._states = initial_states(self.np_random.standard_normal(self.num_envs), self.market)
        self._ended = np.zeros(self.num_envs, dtype=bool)
        return self._states.copy(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Move every running episode one step on, and start a new one where the last had ended."""
        if self._states is None:
            raise gymnasium.error.ResetNeeded("no episode has begun: call reset() first")
        actions = _checked(actions, self.action_space.shape)
        noise = self.np_random.standard_normal(self.num_envs)
        moved, rewards, terminated = transition(self._states, actions, noise, self.market)
        fresh = initial_states(noise, self.market)
        self._states = np.where(self._ended[:, None], fresh, moved)
        rewards = np.where(self._ended, 0.0, rewards)
        terminated = terminated & ~self._ended
        self._ended = terminated
        return self._states.copy(), rewards, terminated.copy(), np.zeros(self.num_envs, dtype=bool), {}


def register() -> None:
    """Make `phyb/Liquidation-v0` known to Gymnasium; calling it again changes nothing."""
    if ENV_ID not in gymnasium.registry:
        gymnasium.register(
            id=ENV_ID,
            entry_point="phyb.envs.liquidation:LiquidationEnv",
            vector_entry_point="phyb.envs.liquidation:LiquidationVectorEnv",
        )
