# %% [markdown]
# # Your own data frame
#
# A table with one row per step becomes a log: name the columns. Here a tank loses water at random, and an operator
# with a habit opens the inlet. The reward is higher the nearer the level is to 1, and water costs a little.

# %%
import numpy as np
from rich.console import Console

import phyb

rng = np.random.default_rng(0)


def fill(operate, days):
    """Rows of days of twenty steps; `operate` says how far to open the inlet."""
    rows = []
    for day in range(days):
        level = rng.uniform(0.2, 1.8)
        for _ in range(20):
            demand = rng.uniform(0.0, 0.2)
            inlet = float(np.clip(operate(level, demand), 0.0, 1.0))
            after = level + 0.5 * inlet - demand - 0.05
            rows.append((day, level, demand, inlet, -abs(after - 1.0) - 0.1 * inlet))
            level = after
    return dict(zip(("day", "level", "demand", "inlet", "gain"), np.array(rows).T, strict=True))


frame = fill(lambda level, demand: 0.5 * (1.1 - level) + 0.2 * rng.standard_normal(), days=60)

# %% [markdown]
# A pandas or Polars frame works the same way; a dict of columns needs neither. `episode` says where days begin and
# end. What had to be assumed is recorded.

# %%
log = phyb.Log.from_frame(
    frame, observations=["level", "demand"], actions=["inlet"], reward="gain", episode="day", action_bounds=(0.0, 1.0)
)
print(f"{len(log):,} rows, {len(log.episode_returns())} episodes, mean return {log.episode_returns().mean():.2f}")
print(log.provenance["assumed"])

# %% [markdown]
# ## Train without a simulator
#
# There is nothing to test the policy in. The only estimate is the return under the belief.

# %%
settings = {"steps": 400, "model_steps": 600, "pool_size": 6, "model_hidden": (48, 48), "fit_steps": 1500}
schedule = {"log_every": 50, "evaluate_every": 200, "evaluation_episodes": 200, "final_episodes": 500}
algorithm = phyb.PhyB(accept_poor_pool=True, **settings, **schedule)
run = algorithm.fit(log, seed=0, out="run", console=Console(quiet=True))
print(f"behaviour        {run.result['behaviour_return']:7.2f}")
print(f"under the belief {run.result['belief_return']:7.2f} ± {run.result['belief_std_error']:.2f}")

# %% [markdown]
# ## Use the policy
#
# It takes one observation, or a batch, in the units of the log.

# %%
for level in (0.4, 0.8, 1.2):
    print(f"level {level:.1f}: open the inlet to {run.policy.act(np.array([level, 0.1], np.float32))[0]:.2f}")

# %% [markdown]
# ## What it really earns
#
# This tank is made up, so the policy can be tried; with real data it cannot. Days of the log have 19 usable steps: a
# log without successors loses the last one. Compare like with like.

# %%
tried = fill(lambda level, demand: run.policy.act(np.array([level, demand], np.float32))[0], days=100)
print(f"true return over 19 steps {tried['gain'].reshape(100, 20)[:, :19].sum(axis=1).mean():7.2f}")
