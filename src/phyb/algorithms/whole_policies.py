"""PhyB's update with judge episodes: candidates are whole policies, and the belief is asked about whole episodes.

1. vary the policy in the directions that matter over the log, in pairs of opposite sign;
2. let every candidate walk whole episodes inside N drawn models, from the same starts and with the same chance;
3. weigh for each candidate the k models in which it earns least: its worth;
4. solve the mirror step on the candidates, move to their weighed mean; the slow reference follows.

The belief and the mirror step are those of the other judges. Single actions cannot be told apart where their effect is
small beside the models' errors, and a fall that ends an episode hundreds of steps later is in no action's value; whole
episodes show both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from phyb.algorithms.learner import Metrics
from phyb.algorithms.problem import Problem
from phyb.belief.backup import draw, weigh
from phyb.belief.episodes import walk
from phyb.policy.actor import Candidates, squash

if TYPE_CHECKING:
    from phyb.algorithms.phyb import PhyB, PhyBState


def update_whole_policies(algorithm: PhyB, state: PhyBState, problem: Problem) -> tuple[PhyBState, Metrics]:
    """One update with judge episodes.

    Candidates are draws around the actor, so that each is as likely under it: the mirror step's reference is uniform.
    Noise on their actions is the same for all; a policy that earns only as long as nothing shakes it is not wanted.
    """
    cfg, world, variation = algorithm.config, problem.world, state.variation
    assert world is not None, "this algorithm needs a pool"
    assert variation is not None, "init finds the directions"
    keys = jax.random.split(state.key, 6)
    members = draw(keys[1], cfg.belief, world.pool)
    starts = jax.random.choice(keys[2], problem.starts, (cfg.episode_starts,))
    changes = variation.draw(keys[3], cfg.policy_candidates, cfg.policy_spread, problem.action_size)
    policies, rows = len(changes), cfg.episode_starts

    def act(observations: Array, chance: PRNGKeyArray) -> Array:
        apart = problem.standardizer(observations).reshape(len(members), policies, rows, -1)
        means = variation.means(state.actor, apart, changes)
        noise = cfg.action_noise * jax.random.normal(chance, means.shape[2:])
        return squash(means + noise).reshape(len(members), policies * rows, -1)

    episodes = walk(
        keys[4],
        world,
        cfg.belief,
        members,
        jnp.tile(starts, (policies, 1)),
        act,
        problem.standardizer,
        steps=min(cfg.episode_steps, problem.horizon),
        doubt_cost=cfg.doubt_cost,
    )
    earned = jnp.mean(episodes.returns.reshape(len(members), policies, rows), axis=-1)
    weights = weigh(keys[5], cfg.belief, earned)
    worth = jnp.sum(weights * earned, axis=0)
    even = Candidates(changes.reshape(1, policies, -1), jnp.full((1, policies), 1.0 / policies))
    step, step_size = algorithm.improve(state, even, worth[None])
    actor = variation.apply(state.actor, jnp.einsum("p,pna->na", step.weights[0], changes))
    after = state._replace(
        actor=actor,
        reference=state.reference.towards(actor, cfg.reference_rate),
        step_size=step_size,
        key=keys[0],
        step=state.step + 1,
    )
    order = jnp.argsort(earned, axis=0)
    metrics = {
        "episode_return": jnp.mean(worth) * problem.reward_scale,
        "episode_spread": jnp.std(worth) * problem.reward_scale,
        "pessimism": jnp.mean(jnp.mean(earned, axis=0) - worth) * problem.reward_scale,
        "weight_by_rank": jnp.mean(jnp.take_along_axis(weights, order, axis=0), axis=1),
        "imagined_end": 1.0 - jnp.mean(episodes.survival),
        "doubt": jnp.mean(episodes.doubt),
        "divergence": jnp.mean(step.divergence),
        "step_size": step_size,
        "boldness": state.boldness,
    }
    return after, metrics
