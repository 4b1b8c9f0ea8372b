"""Tasks: the liquidation environment with its exact optimum, and what is known about each environment id."""
