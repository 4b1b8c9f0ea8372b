# %% [markdown]
# # Algorithms on one log
#
# Three algorithms learn from the same log of random trading. All of them write the same kind of run, so one loop
# serves all. The runs are short: read the table as an example of the procedure, not as a result. [Table
# 2](../table2.md) is the measured comparison.

# %%
from rich.console import Console

import phyb
from phyb.data.collect import collect_liquidation

log = collect_liquidation(10_000, seed=0)
quiet = Console(quiet=True)
schedule = {"log_every": 100, "evaluate_every": 500, "evaluation_episodes": 500, "final_episodes": 5000}
pool = {"model_steps": 800, "pool_size": 8, "model_hidden": (48, 48), "accept_poor_pool": True, "fit_steps": 1500}
algorithms = {
    "BC": phyb.BC(task="liquidation", steps=500, **schedule),
    "TD3+BC": phyb.TD3BC(task="liquidation", steps=1000, **schedule),
    "MOPO": phyb.MOPO(task="liquidation", steps=500, **pool, **schedule),
}

# %%
env = "phyb/Liquidation-v0"
runs = {name: each.fit(log, env=env, seed=0, out=name, console=quiet) for name, each in algorithms.items()}
print(f"{'':8} {'return':>8} {'± s.e.':>7} {'CVaR 10 %':>10} {'belief':>8}")
for name, run in runs.items():
    found = run.result
    belief = "–" if found["belief_return"] is None else f"{found['belief_return']:.1f}"
    print(f"{name:8} {found['mean_return']:8.1f} {found['std_error']:7.2f} {found['cvar_10']:10.1f} {belief:>8}")

# %% [markdown]
# The log itself earns about 99 per episode and the optimum 137. Algorithms without models have no estimate of their
# own; `phyb select` gives them one, by the pool of another run.
#
# ## Look at two runs side by side

# %%
from phyb.report.comparison import write_comparison

page = write_comparison(runs["TD3+BC"].folder, runs["MOPO"].folder, "comparison.html")
print(f"{page.name}: {page.stat().st_size / 1000:.0f} kB")
