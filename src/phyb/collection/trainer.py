"""Online training of SAC in rounds: each starts with a reset of all environments and ends with everything on disk.

The state of a simulator cannot be saved in general, so nothing of it is carried over: a round resets all copies with
seeds of its own. An interrupted training repeats the round it was in, and gives the same bytes as an uninterrupted
one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from phyb.algorithms import sac
from phyb.algorithms.sac import SACConfig, SACState
from phyb.collection.copies import Copies, RandomStreams, episode_returns
from phyb.collection.logs import Recorded
from phyb.collection.settings import CollectConfig
from phyb.data.dataset import Rows
from phyb.errors import DataError, DivergenceError
from phyb.interrupt import StopRequests
from phyb.policy.actor import Actor
from phyb.storage.store import Store

Tree = TypeVar("Tree")
_NETWORKS, _ROUND, _EVALUATION = 1, 2, 3


@dataclasses.dataclass(frozen=True)
class Record:
    """A policy whose evaluation return exceeds all earlier ones."""

    round: int
    """Rounds of training it has seen."""
    steps: int
    """Rows of training it has seen."""
    value: float
    """Mean return of its evaluation."""


@dataclasses.dataclass
class Training:
    """The state of the training after a number of rounds."""

    state: SACState
    rounds: int
    """Rounds that are done."""
    replay: Float[np.ndarray, "rows width"]
    """The replay buffer: every row in the order of time, with room for all rounds."""
    records: list[Record]
    """Policies that set a new record, oldest first: the first one to reach any mark is always among them."""


class SACTrainer:
    """Trains SAC in a simulator and keeps everything in a store."""

    def __init__(
        self, copies: Copies, sac: SACConfig, config: CollectConfig, seed: int, store: Store, stop: StopRequests
    ) -> None:
        self._copies, self._task = copies, copies.task
        self._sac, self._config, self._seed = sac, config, seed
        self._store, self._stop = store, stop
        self._rounds = config.rounds(copies.task.episode_limit)

    def rows(self, rounds: int | None = None) -> int:
        """Rows recorded after a number of rounds, or after all."""
        return self._copies.count * sum(self._rounds[:rounds])

    def train(self, on_progress: Callable[[int, str], None]) -> Training:
        """All rounds, from the newest saved one on; `on_progress` gets (rows so far, newest numbers)."""
        training, info = self._newest(), ""
        while training.rounds < len(self._rounds):
            self._round(training, lambda rows, info=info: on_progress(rows, info))
            training.rounds += 1
            value = self._evaluate(training.state.actor, training.rounds)
            info = f"return {value:,.1f}"
            self._save(training, value)
            on_progress(self.rows(training.rounds), info)
        return training

    def replay(self, training: Training, rounds: int) -> list[Recorded]:
        """What each of the first rounds recorded."""
        parts = np.split(training.replay, [self.rows(number + 1) for number in range(rounds)])[:rounds]
        return [part.reshape(-1, self._copies.count, self._task.width) for part in parts]

    def actor(self, record: Record) -> Actor:
        """The network of a record."""
        return self._load(_name("policies", record.round), jax.eval_shape(self._fresh).actor)

    def _fresh(self) -> SACState:
        key = RandomStreams(self._seed, _NETWORKS).key
        return sac.init(self._sac, key, self._task.observation_size, self._task.action_size)

    def _round(self, training: Training, on_progress: Callable[[int], None]) -> None:
        task, config, replay = self._task, self._config, training.replay
        random = RandomStreams(self._seed, _ROUND, training.rounds)
        steps, copies, count = self._rounds[training.rounds], self._copies.count, self.rows(training.rounds)
        turn = min(config.turn_steps, self._rounds[0])
        self._copies.start(random)
        for step in range(steps):
            if count < config.random_steps:
                actions = random.generator.uniform(-1.0, 1.0, (copies, task.action_size))
            else:
                actions = sample_actions(training.state.actor, random.key, step, self._copies.observations)
            replay[count : count + copies] = self._copies.step(actions)
            count += copies
            if (step + 1) % turn == 0:
                self._stop.check()
                on_progress(count)
                if count >= config.random_steps:
                    chosen = random.generator.integers(count, size=(turn * copies, self._sac.batch_size))
                    key = jax.random.fold_in(random.key, steps + step)  # the first `steps` keys draw actions
                    training.state, metrics = sac.updates(self._sac, training.state, key, self._rows(replay[chosen]))
                    self._check(metrics, count)

    def _rows(self, rows: np.ndarray) -> Rows:
        columns = self._task.columns(rows)
        return Rows(*(jnp.asarray(columns[name]) for name in Rows._fields))

    def _check(self, metrics: dict[str, Any], count: int) -> None:
        bad = [name for name, value in metrics.items() if not np.isfinite(value)]
        if bad:
            raise DivergenceError(
                f"{self._store.path}: training diverged before row {count:,}: {', '.join(bad)} is not a finite number. "
                "The rounds before are kept. Start again in another folder with a lower --learning-rate."
            )

    def _evaluate(self, actor: Actor, number: int) -> float:
        random = RandomStreams(self._seed, _EVALUATION, number)

        def act(observations: np.ndarray, step: int) -> np.ndarray:
            self._stop.check()
            return sample_actions(actor, random.key, step, observations)

        return float(np.mean(episode_returns(self._copies, self._config.evaluation_episodes, random, act)))

    def _save(self, training: Training, value: float) -> None:
        store, rounds = self._store, training.rounds
        first, last = self.rows(rounds - 1), self.rows(rounds)
        store.save_tree(_name("replay", rounds), {"rows": training.replay[first:last]})
        if all(value > record.value for record in training.records):
            training.records.append(Record(rounds, last, value))
            store.save_tree(_name("policies", rounds), training.state.actor)
        about = {"rounds": rounds, "records": [dataclasses.asdict(record) for record in training.records]}
        store.save_tree(_name("learner", rounds), training.state, about)
        kept = {_name("learner", rounds), _name("learner", rounds - 1)}  # a spare
        store.drop(*(name for name in store.entries if name.startswith("learner/") and name not in kept))

    def _newest(self) -> Training:
        """The newest state that is as it was written, with the replay up to it."""
        replay = np.zeros((self.rows(), self._task.width), np.float32)
        for name in sorted((name for name in self._store.entries if name.startswith("learner/")), reverse=True):
            about = self._store.about(name)
            if about is not None:
                state = self._store.load_tree(name, jax.eval_shape(self._fresh))
                training = Training(state, about["rounds"], replay, [Record(**found) for found in about["records"]])
                for rounds in range(1, training.rounds + 1):
                    first, last = self.rows(rounds - 1), self.rows(rounds)
                    replay[first:last] = self._load(_name("replay", rounds), {"rows": replay[first:last]})["rows"]
                return training
        return Training(self._fresh(), 0, replay, [])

    def _load(self, name: str, like: Tree) -> Tree:
        if not self._store.vouches(name):
            raise DataError(f"{self._store.path / name}: is missing or damaged. Collect again in another folder.")
        return self._store.load_tree(name, like)


def sample_actions(actor: Actor, key: jax.Array, step: int, observations: np.ndarray) -> np.ndarray:
    """Actions in [-1, 1] of the stochastic policy at a step."""
    return np.asarray(_sample(actor, key, np.uint32(step), np.asarray(observations, np.float32)))


@jax.jit
def _sample(actor: Actor, key: jax.Array, step: jax.Array, observations: jax.Array) -> jax.Array:
    return sac.act(actor, jax.random.fold_in(key, step), observations)[0]


def _name(folder: str, rounds: int) -> str:
    return f"{folder}/round-{rounds:05d}.safetensors"
