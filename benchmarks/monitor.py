"""How often does phyb monitor raise an alarm: on new episodes of the same behaviour, and on those of other agents?

    python benchmarks/monitor.py [FOLDER] [--out results/monitor.json]      or: make monitor-check DATA=FOLDER

Per case a pool is trained on half of the episodes of a log. The other half is split at random 100 times into hold-out
episodes to compare with and a new log of the same behaviour. New logs of other agents are random subsets of episodes of
another log. FOLDER holds SAC's logs, as docs/collect.md makes them.
"""

import argparse
import dataclasses
import json
from pathlib import Path

import numpy as np

from phyb.data.collect import collect_liquidation
from phyb.data.files import load_log
from phyb.data.log import FIELDS, Log
from phyb.deploy.compare import LEVEL, compare
from phyb.deploy.ground import Ground, Measured
from phyb.dynamics.fit import PoolConfig, fit_pool
from phyb.envs.liquidation import DEFAULT_SPEC, initial_states, transition
from phyb.envs.rules import RULES

SPLITS = 100
MODELS = ("range", "disagreement", "errors", "behaviour")
TOPICS = {"with models": MODELS, "without models": ("range", "behaviour"), "range, models only": MODELS[:3]}
"""What is looked at; the last is what a log of the run's own policy is judged by."""
POOL = PoolConfig(pool_size=5, model_hidden=(128, 128), model_steps=4000, model_check_every=500)


def trading(rule, spec, episodes=1000, seed=5):
    """A log of a trading rule in a market."""
    generator = np.random.default_rng(seed)
    states, running, steps = initial_states(generator.standard_normal(episodes), spec), np.ones(episodes, bool), []
    for _ in range(spec.horizon):
        actions = rule(states, generator)
        after, rewards, ends = transition(states, actions, generator.standard_normal(episodes), spec)
        steps.append((running, states, actions, rewards.astype(np.float32), after, ends, np.zeros_like(ends)))
        running, states = running & ~ends, after
    kept, *columns = (np.stack(column, axis=1) for column in zip(*steps, strict=True))
    bound = np.ones(1, np.float32)
    return Log(
        **dict(zip(FIELDS, (column[kept] for column in columns), strict=True)), action_low=-bound, action_high=bound
    )


def liquidation():
    """The log, and other traders or markets."""
    drift = dataclasses.replace(DEFAULT_SPEC, long_run_price=2.0)
    wild = dataclasses.replace(DEFAULT_SPEC, volatility=0.3)
    others = {name: trading(RULES[name], DEFAULT_SPEC) for name in ("uniform random", "equal slices", "threshold 1.5")}
    others |= {"price drifts to 2.0": trading(RULES["behaviour"], drift)}
    others |= {"price drifts to 3.0": trading(RULES["behaviour"], dataclasses.replace(drift, long_run_price=3.0))}
    others |= {"volatility 0.3": trading(RULES["behaviour"], wild)}
    return collect_liquidation(40_000, 0), others


def halves(log, seed):
    """Rows of one half of the episodes, and of the other."""
    count = int(log.episode_of_row[-1]) + 1
    chosen = np.random.default_rng(seed).permutation(count)[: count // 2]
    ours = np.isin(log.episode_of_row, chosen)
    return np.flatnonzero(ours), np.flatnonzero(~ours)


def part(measured, episodes):
    """Some episodes of what was measured."""
    kept = np.isin(measured.episode, episodes)
    return Measured(measured.features, measured.values[kept], measured.episode[kept])


def rows_of(log, rows):
    """A log of these rows alone."""
    columns = {name: getattr(log, name)[rows] for name in FIELDS}
    return dataclasses.replace(log, **columns)


def judge(log, others, sizes, seed=0):
    """Alarms in 100 splits: on the same behaviour, and on every other log."""
    learned, rest = halves(log, seed)
    pool, _ = fit_pool(rows_of(log, learned), POOL, seed)
    ground = Ground.of(log, (learned, rest), pool)
    same, different = ground.measure(log, rest), {name: ground.measure(other) for name, other in others.items()}
    ours, found = np.unique(same.episode), {}
    for size in (size for size in sizes if size <= len(ours) // 2):
        for words, topics in TOPICS.items():
            alarms = dict.fromkeys(("the same behaviour", *different), 0)
            for split in range(SPLITS):
                generator = np.random.default_rng([seed, size, split])
                order = generator.permutation(ours)
                old, new = part(same, order[size:]), part(same, order[:size])
                alarms["the same behaviour"] += alarm(old, new, topics, split)
                for name, theirs in different.items():
                    episodes = np.unique(theirs.episode)
                    some = generator.choice(episodes, min(size, len(episodes)), replace=False)
                    alarms[name] += alarm(old, part(theirs, some), topics, split)
            found[f"{size} episodes, {words}"] = alarms
            print(f"  {size} episodes, {words}: {alarms}", flush=True)
    return {"holdout_episodes": len(ours), "alarms": found}


def alarm(old, new, topics, seed):
    """Whether anything differs."""
    return any(each.alarm for each in compare(old, new, topics, seed).differences)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/monitor.json"))
    arguments = parser.parse_args()
    cases = {"liquidation": liquidation()}
    if arguments.folder is not None:
        for body in ("hopper", "halfcheetah"):
            medium, expert = (load_log(arguments.folder / f"{body}-{kind}.hdf5") for kind in ("medium", "expert"))
            cases[f"{body}-medium"] = (medium, {f"{body}-expert": expert})
            cases[f"{body}-expert"] = (expert, {f"{body}-medium": medium})
    found = {"level": LEVEL, "splits": SPLITS, "pool": dataclasses.asdict(POOL), "cases": {}}
    for name, (log, others) in cases.items():
        print(name, flush=True)
        found["cases"][name] = judge(log, others, (10, 20, 50, 200))
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
