"""How much is collected, and in which portions."""

from __future__ import annotations

import dataclasses

from phyb.fields import Count, OpenFraction, Whole

_SHORTEST_ROUND = 1000


@dataclasses.dataclass(frozen=True)
class CollectConfig:
    """How much is collected, and how."""

    steps: Count = 1_000_000
    """Steps of SAC's training, which are the rows of full-replay, rounded up to a multiple of `copies`. More gives a
    better expert and takes longer."""
    rows: Count = 1_000_000
    """Rows of random, medium and expert, rounded up to a multiple of `copies`; medium-expert has twice as many."""
    medium_share: OpenFraction = 1 / 3
    """Medium is the first policy that has made this share of the expert's way from the random return. Lower is a worse
    medium policy and a shorter medium-replay."""
    copies: Count = 8
    """Copies of the environment that run side by side. More runs faster; updates see newer rows a little later."""
    round_steps: Count | None = None
    """Steps of each copy in a round of training, after which the policy is evaluated and everything is saved, and all
    copies start anew; None is the episode limit of the environment, or its multiple above 1000. Lower loses less when
    interrupted and cuts more episodes."""
    random_steps: Whole = 5_000
    """Steps of the training with uniform actions, before the first update. More explores longer."""
    turn_steps: Count = 8
    """Steps of each copy between updates; as many updates follow as there are new rows. Higher saves a little time."""
    evaluation_episodes: Count = 10
    """Episodes of the evaluation after each round, rounded up to a multiple of `copies`. More finds the medium and the
    expert policy more reliably."""

    def rounds(self, episode_limit: int | None) -> tuple[int, ...]:
        """Steps of each copy in each round; the last one may be shorter."""
        limit = episode_limit or _SHORTEST_ROUND
        length = self.round_steps or limit * -(-_SHORTEST_ROUND // limit)
        steps = -(-self.steps // self.copies)
        rest = (steps % length,) if steps % length else ()
        return (length,) * (steps // length) + rest
