# %% [markdown]
# # Liquidation
#
# Sell 100 units within 20 steps at a random price. The log comes from a trader who acts at random. The exact
# optimum is known, so every estimate can be checked. The run is short on purpose; `make demo` trains to the end.

# %%
import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

import phyb

settings = {"transitions": 10_000, "steps": 450, "model_steps": 800, "pool_size": 8, "model_hidden": (48, 48)}
schedule = {
    "log_every": 50,
    "evaluate_every": 100,
    "evaluation_episodes": 500,
    "final_episodes": 5000,
    "fit_steps": 800,
}
algorithm = phyb.PhyB(task="liquidation", accept_poor_pool=True, **settings, **schedule)
run = algorithm.fit("liquidation", seed=0, out="run", console=Console(quiet=True))

# %% [markdown]
# ## Result
#
# The return under the belief needs no simulator. It should be at most the true return. After so few updates the
# policy still earns less than the log: 16,000 updates reach 136 to 137.

# %%
for key in ("mean_return", "std_error", "belief_return", "behaviour_return", "optimal_return"):
    print(f"{key:18} {run.result[key]:8.2f}")

# %% [markdown]
# ## Learning curve

# %%
lines = [line for line in run.metrics if line["stage"] == "evaluation"]
figure = Figure(figsize=(6, 3), layout="constrained")
axes = figure.add_subplot(xlabel="updates", ylabel="return")
for key, label in (("true_return", "true"), ("belief_return", "under the belief")):
    axes.plot([line["step"] for line in lines], [line[key] for line in lines], label=label)
axes.axhline(run.result["optimal_return"], linestyle="--", color="grey", label="optimum")
axes.legend()
figure

# %% [markdown]
# ## The policy
#
# The action at t = 10 with the full holding: at or below 0 it holds, 1 sells everything. The best policy sells from
# a price of 1.76 on.

# %%
prices = np.linspace(0.5, 2.5, 5)
actions = run.policy.act(np.stack([np.full(5, 10.0), np.full(5, 100.0), prices], axis=1).astype(np.float32))
for price, action in zip(prices, actions[:, 0], strict=True):
    print(f"price {price:.1f}  action {action:5.2f}")
