"""How much is collected, and in which portions."""

from __future__ import annotations

import dataclasses

_SHORTEST_ROUND = 1000


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Lengths of the training, in steps of all copies together unless said otherwise."""

    copies: int
    rounds: tuple[int, ...]
    """Steps of each copy in each round."""
    random_steps: int
    """Rows recorded with uniform actions, before the first update."""
    turn: int
    """Steps of each copy between updates; as many updates follow as there are new rows."""
    evaluation_episodes: int

    def rows(self, rounds: int) -> int:
        """Rows recorded after a number of rounds."""
        return self.copies * sum(self.rounds[:rounds])


@dataclasses.dataclass(frozen=True)
class CollectConfig:
    """How much is collected, and how."""

    steps: int = 1_000_000
    """Steps of SAC's training, which are the rows of full-replay, rounded up to a multiple of `copies`. More gives a
    better expert and takes longer."""
    rows: int = 1_000_000
    """Rows of random, medium and expert, rounded up to a multiple of `copies`; medium-expert has twice as many."""
    medium_share: float = 1 / 3
    """Medium is the first policy that has made this share of the expert's way from the random return. Lower is a worse
    medium policy and a shorter medium-replay."""
    copies: int = 8
    """Copies of the environment that run side by side. More runs faster; updates see newer rows a little later."""
    round_steps: int | None = None
    """Steps of each copy in a round of training, after which the policy is evaluated and everything is saved, and all
    copies start anew; None is the episode limit of the environment, or its multiple above 1000. Lower loses less when
    interrupted and cuts more episodes."""
    random_steps: int = 5_000
    """Steps of the training with uniform actions, before the first update. More explores longer."""
    turn_steps: int = 8
    """Steps of each copy between updates; as many updates follow as there are new rows. Higher saves a little time."""
    evaluation_episodes: int = 10
    """Episodes of the evaluation after each round, rounded up to a multiple of `copies`. More finds the medium and the
    expert policy more reliably."""

    def __post_init__(self) -> None:
        counts = ("steps", "rows", "copies", "turn_steps", "evaluation_episodes")
        for name in counts if self.round_steps is None else (*counts, "round_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0.0 < self.medium_share < 1.0:
            raise ValueError(f"medium_share must lie between 0 and 1, got {self.medium_share}")

    def schedule(self, episode_limit: int | None) -> Schedule:
        """The lengths of all rounds; the last one may be shorter."""
        limit = episode_limit or _SHORTEST_ROUND
        length = self.round_steps or limit * -(-_SHORTEST_ROUND // limit)
        turn = min(self.turn_steps, length)
        steps = -(-self.steps // self.copies)
        rest = [steps % length] if steps % length else []
        rounds = (*[length] * (steps // length), *rest)
        return Schedule(self.copies, rounds, self.random_steps, turn, self.evaluation_episodes)
