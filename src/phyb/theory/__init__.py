"""PhyB's operators on finite MDPs, exactly, and the paper's claims as executable checks."""

from phyb.theory.exact import Evaluation, Optimum, evaluate, optimise, plan, policy_iteration
from phyb.theory.mdp import FiniteMDP, Hybrid, dirichlet_models, make_mdp, perturbed_models, random_mdps

__all__ = [
    "Evaluation",
    "FiniteMDP",
    "Hybrid",
    "Optimum",
    "dirichlet_models",
    "evaluate",
    "make_mdp",
    "optimise",
    "perturbed_models",
    "plan",
    "policy_iteration",
    "random_mdps",
]
