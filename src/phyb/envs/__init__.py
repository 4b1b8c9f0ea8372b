"""Tasks: the liquidation environment with its exact optimum, and what is known about each environment id."""

from phyb.envs.liquidation import register as _register_liquidation

_register_liquidation()
