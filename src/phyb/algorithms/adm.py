"""ADM (ADMPO-OFF): rollouts are paid less where looking back further predicts something else (Lin et al., 2025).

One any-step model takes the place of an ensemble. A rollout carries its last K states and actions. At each step the
model predicts the next state from the state k steps back, for every k = 1 .. K, as far as there are so many; one k is
drawn at random and followed. The reward is lowered by how far these predictions spread,

    r - w u,    u = sqrt( 1/d sum_j var_k mu_{k,j} ),

with mu_k the predicted mean of the next state in the units of the log; predicted rewards have no part in u. All else is
SAC on logged and imagined rows, at a fixed temperature.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from phyb.algorithms import sac
from phyb.algorithms.base import PAPER_TRAINING, locomotion_tasks
from phyb.algorithms.model_sac import CPU_AGENT, ModelConfig, ModelSAC, ModelState, by_dataset
from phyb.algorithms.problem import Problem
from phyb.data.dataset import Rows
from phyb.dynamics.any_step import AnyStepModel
from phyb.dynamics.registry import MODELS
from phyb.errors import UsageError
from phyb.fields import Fraction, NonNegative, Positive
from phyb.world.history import History, look_back_step
from phyb.world.rollout import Recorder, Transition, elite_members, rollout


@dataclasses.dataclass(frozen=True)
class ADMConfig(ModelConfig):
    """Settings of ADM; the defaults are published ones."""

    actor_decay: Fraction = 0.0
    initial_temperature: Positive = 0.1
    temperature_learning_rate: NonNegative = 0.0
    uncertainty_weight: NonNegative = 2.5
    """w, price of one unit of spread between the predictions, in the units of the log. Higher keeps to where they agree
    however far they look back; 0 trusts them everywhere."""
    rollout_dropout: bool = False
    """Leave units of the model out in rollouts too, as in its training. The released code does; the spread then also
    counts what the units that are left out know."""


_ANY_STEP = {"model": "any-step", "pool_size": 1}
_LOCOMOTION_POOL = _ANY_STEP | {
    "model_window": 3,
    "model_hidden": (128, 128),
    "model_steps": 10_000,
    "model_check_every": 500,
}


class ADM(ModelSAC[ADMConfig]):
    """Any-step dynamics model policy optimisation, offline."""

    name = "adm"
    config_class = ADMConfig
    presets: ClassVar = {
        "cpu": {
            "pool": _ANY_STEP | {"model_window": 3, "model_hidden": (64, 64), "model_steps": 3000},
            "agent": CPU_AGENT
            | {"initial_temperature": 0.01, "temperature_learning_rate": 0.0, "uncertainty_weight": 0.5},
            "training": {"steps": 10_000},
        },
        "paper": {
            "pool": _ANY_STEP
            | {
                "model_window": 2,
                "model_hidden": (200, 200, 200),
                "model_learning_rate": 3e-4,
                "model_weight_decay": 0.0,
                "model_steps": 390_000,
                "model_check_every": 7800,
                "model_patience": 25,
                "nll_beta": 0.0,
            },
            "training": {**PAPER_TRAINING, "steps": 5_000_000},
        },
    }
    tasks = locomotion_tasks(ADMConfig, presets, steps=30_000, pool=_LOCOMOTION_POOL, rollout_starts=20_000)
    datasets = by_dataset(
        model_window={"random": (2, 5, 2), "medium": (2, 5, 5), "medium-replay": (2, 5, 5), "medium-expert": (2, 2, 3)},
        model_hidden={"medium-expert": ((400, 400, 400), (200, 200, 200), (200, 200, 200))},
        rollout_length={
            "random": (10, 50, 50),
            "medium": (5, 10, 10),
            "medium-replay": (5, 5, 5),
            "medium-expert": (20, 20, 2),
        },
        uncertainty_weight={
            "random": (2.5, 5.0, 2.5),
            "medium": (2.5, 1.0, 5.0),
            "medium-replay": (2.5, 0.1, 0.1),
            "medium-expert": (9.16, 20.0, 6.0),
        },
        initial_temperature={
            "random": (0.1, 1.0, 1.0),
            "medium": (0.1, 0.05, 0.01),
            "medium-replay": (0.1, 0.05, 0.1),
            "medium-expert": (0.05, 0.05, 0.011),
        },
        real_fraction={"medium-replay": (0.05, 0.5, 0.5), "medium-expert": (0.5, 0.5, 0.5)},
        actor_learning_rate={"medium-replay": (7e-5, 1e-4, 1e-4)},
        actor_decay={"medium-replay": (1.0, 0.0, 0.0)},
        steps={"random": (3_000_000, 3_000_000, 3_000_000)},
    )

    def setup(self) -> None:
        """The optimisers, once it is certain that the models can look back."""
        super().setup()
        kind = self.settings.pool.model if self.settings.pool else ""
        if kind in MODELS and not issubclass(MODELS.load(kind), AnyStepModel):
            raise UsageError(f"--model {kind}: predicts single steps, adm looks further back. Take --model any-step.")

    def memory(self, observation_size: int, action_size: int) -> int:
        """What SAC on logged and imagined rows needs, and what the model holds of all windows of a step."""
        pool = self.settings.pool
        assert pool is not None, "this algorithm needs a pool"
        numbers = 3 * (observation_size + action_size) + 6 * max(pool.model_hidden, default=1)
        windows = 4 * self.config.rollout_starts * pool.model_window * numbers
        return super().memory(observation_size, action_size) + windows

    def imagine(self, key: PRNGKeyArray, state: ModelState, problem: Problem) -> tuple[Rows, Bool[Array, "steps rows"]]:
        """One round of rollouts of the policy in one of the best models, from logged rows and what came before them."""
        start_key, member_key, roll_key = jax.random.split(key, 3)
        cfg, world = self.config, problem.learned_world()
        assert isinstance(world.pool.members, AnyStepModel)
        starts = History.before(problem, problem.draw(start_key, cfg.rollout_starts), world.pool.members.window)
        member = jax.random.choice(member_key, elite_members(world.pool, cfg.elites))

        def act(key: PRNGKeyArray, history: History) -> Float[Array, "rows act"]:
            return sac.act(state.actor, key, problem.standardizer(history.observations[:, -1]))[0]

        def step(key: PRNGKeyArray, history: History, actions: Array, alive: Array) -> Transition:
            row, after, survival, spread = look_back_step(
                key, world, member, history, actions, dropout=cfg.rollout_dropout
            )
            price = cfg.uncertainty_weight * spread / problem.reward_scale
            paid = row._replace(rewards=row.rewards - price)
            return Transition(row._replace(next_observations=after), alive, survival, info=paid)

        record = Recorder(keep=lambda moved: (moved.info, moved.weight > 0))
        alive = jnp.ones(cfg.rollout_starts)
        return rollout(roll_key, starts, act, step, length=cfg.rollout_length, record=record, alive=alive).kept
