"""Synthetic run folders: everything a liquidation run writes, and what to take away from it."""

import json

import jax
import jax.numpy as jnp
import numpy as np

from phyb.envs.tasks import find_task, normalized_score
from phyb.networks import Standardizer
from phyb.policy.actor import Actor
from phyb.policy.policy import Policy

STEPS = 4000


def config(**changes):
    return {
        "format": 1,
        "task": "liquidation",
        "algorithm": "phyb",
        "preset": "cpu",
        "seed": 3,
        "env_id": "phyb/Liquidation-v0",
        "data": {"rows": 50_000, "provenance": {"behaviour": "random"}},
        "settings": {
            "pool": {"pool_size": 20, "model_hidden": [64, 64]},
            "agent": {
                "potential_mix": 0.9125,
                "target_divergence": 0.5,
                "critic_vote": "least",
                "belief": {"subset_size": 5},
            },
            "training": {"steps": STEPS, "termination": None},
        },
        "versions": {"phyb": "0.1.0", "jax": "0.10.2"},
    } | changes


def result(**changes):
    return {
        "task": "liquidation",
        "algorithm": "phyb",
        "preset": "cpu",
        "seed": 3,
        "steps": STEPS,
        "normalized_score": 101.17,
        "mean_return": 136.58,
        "std_error": 0.41,
        "cvar_10": 71.23,
        "optimal_return": 137.48,
        "regret": 0.90,
        "behaviour_return": 98.87,
        "belief_return": 131.91,
        "belief_std_error": 0.52,
        "belief_is_lower_bound": True,
        "episodes": 5000,
        "wall_seconds": {"collect": 0.4, "pool": 95.0, "policy": 287.0, "evaluate": 3.0},
        "rules": {"wait to the end": {"mean_return": 131.95, "normalized_score": 97.74}},
        "versions": {"phyb": "0.1.0"},
    } | changes


def metrics(simulator=True):
    task = find_task("liquidation")
    assert task is not None
    lines = [{"stage": "pool", "step": s, "holdout_nll": 3.0 / s - 4.0} for s in range(100, 600, 100)]
    for step in range(200, STEPS + 1, 200):
        share = step / STEPS
        lines.append(
            {
                "stage": "policy",
                "step": step,
                "critic_loss": 0.05 * np.exp(-4 * share),
                "value_loss": 0.02 * np.exp(-4 * share),
                "q_logged": 40 + 50 * share,
                "q_imagined": 30 + 70 * share,
                "uncertainty": -1.5 - share,
                "pessimism": 2.0 - share,
                "weight_by_rank": [0.6, 0.3, 0.1, 0.0],
                "chosen_by_rank": [0.59, 0.31, 0.1, 0.0],
                "imagined_end": 0.08,
                "outside_data": 0.004,
                "divergence": 0.5,
                "step_size": 0.02 * np.exp(-3 * share),
                "rollout_age": 7.0,
                "actor_std": 0.5,
            }
        )
    for step in range(0, STEPS + 1, 400):
        true = 60 + 76 * (1 - np.exp(-9 * step / STEPS))
        line = {
            "stage": "evaluation",
            "step": step,
            "belief_return": true - 4,
            "belief_std_error": 0.5,
            "belief_discounted": true - 4,
            "start_value": true,
        }
        if simulator:
            line |= {"true_return": true, "true_std_error": 0.6, "normalized_score": normalized_score(task, true)}
        lines.append(line)
    return lines


def diagnostics(observations=3):
    def dimension(name, exact=False):
        bins = [{"predicted_std": s, "observed_rmse": 1.1 * s, "rows": 100} for s in (0.1, 0.2, 0.4)]
        return {
            "name": name,
            "trivial_rmse": 1.0,
            "member_rmse": 0.0 if exact else 0.3,
            "pool_rmse": 0.0 if exact else 0.25,
            "share_explained": 1.0 if exact else 0.9375,
            "exact": exact,
            "coverage_50": None if exact else 0.47,
            "coverage_90": None if exact else 0.88,
            "standardised_squared_error": None if exact else 1.21,
            "bins": [] if exact else bins,
            "spread_error_correlation": None if exact else 0.4,
        }

    def growth(name):
        return {"name": name, "sampled": [0.3, 0.4, 0.8], "mean": [0.2, 0.3, 0.6], "trivial": [0.5, 0.9, None]}

    names = [f"observation {i}" for i in range(observations)] + ["reward"]
    return {
        "format": 2,
        "rows": 300,
        "episodes": 15,
        "members": 20,
        "share_explained": 0.9,
        "better_than_trivial": True,
        "spread_error_correlation": 0.35,
        "doubt_bins": [{"predicted_std": s, "observed_rmse": 0.2 + s, "rows": 100} for s in (0.01, 0.05, 0.3)],
        "dimensions": [dimension(name, exact=i == 0) for i, name in enumerate(names)],
        "termination": {"kind": "rule", "precision": 0.985, "recall": None, "false_end_rate": 0.01},
        "rollouts": {
            "lengths": [1, 2, 20],
            "rollouts": 500,
            "overall": growth("all"),
            "dimensions": [*map(growth, names)],
        },
        "training": {"steps_ran_out": True, "late_gain": 0.3, "still_improving": True},
        "verdict": ["The pool removes 90.0 % of the error.", "It was still improving: raise --model-steps."],
    }


def write_run(folder, *, config=None, result=None, metrics=None, diagnostics=None, policy=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in (("config", config), ("result", result), ("diagnostics", diagnostics)):
        if content is not None:
            (folder / f"{name}.json").write_text(json.dumps(content))
    if metrics is not None:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in metrics))
    if policy:
        actor = Actor(jax.random.key(0), 3, 1, (8,))
        bounds = jnp.array([1.0])
        Policy(actor, Standardizer(jnp.array([9.0, 60.0, 1.2]), jnp.array([6.0, 30.0, 0.5])), -bounds, bounds).save(
            folder / "policy"
        )
    return folder
