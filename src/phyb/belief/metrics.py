"""What the belief did in one update, as metrics."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from phyb.belief.backup import Belief, BeliefConfig
from phyb.belief.weights import ranks
from phyb.world.model import Imagined


def belief_metrics(
    config: BeliefConfig,
    imagined: Imagined,
    belief: Belief,
    chosen: Int[Array, " rows"],
    reward_scale: Float[Array, ""],
) -> dict[str, Array]:
    """Targets in the units of the log, pessimism, weights by rank, and where rollouts were.

    `chosen` is the member each rollout followed. `uncertainty` is the log of the standard deviation of the predicted
    next states over the pessimistic subset (figure 2 of the paper).
    """
    rank = ranks(belief.backups)
    order = jnp.argsort(belief.backups, axis=0)
    chosen_rank = jnp.take_along_axis(rank, chosen[None], axis=0)[0]
    inside = (rank < config.subset_size)[..., None]
    means = jnp.mean(imagined.successors, axis=1)
    centre = jnp.sum(jnp.where(inside, means, 0.0), axis=0) / config.subset_size
    variance = jnp.sum(jnp.where(inside, (means - centre) ** 2, 0.0), axis=0) / config.subset_size
    return {
        "q_imagined": jnp.mean(belief.target) * reward_scale,
        "uncertainty": jnp.mean(0.5 * jnp.log(jnp.sum(variance, axis=-1) + 1e-12)),
        "pessimism": jnp.mean(jnp.mean(belief.backups, axis=0) - belief.target) * reward_scale,
        "weight_by_rank": jnp.mean(jnp.take_along_axis(belief.weights, order, axis=0), axis=1),
        "chosen_by_rank": jnp.mean(chosen_rank[None] == jnp.arange(rank.shape[0])[:, None], axis=1),
        "imagined_end": jnp.mean(1.0 - imagined.alive),
        "outside_data": jnp.mean(imagined.trust < 1.0),
    }
