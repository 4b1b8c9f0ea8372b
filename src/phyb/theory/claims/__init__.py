"""The paper's claims, one check each; importing this package registers them all in `CLAIMS`, in reading order."""

from phyb.theory.claims import likelihood  # isort: skip
from phyb.theory.claims import aggregation  # isort: skip
from phyb.theory.claims import concentration  # isort: skip
from phyb.theory.claims import pessimism  # isort: skip
from phyb.theory.claims import monotone  # isort: skip
from phyb.theory.claims import optimality  # isort: skip
from phyb.theory.claims import improvement  # isort: skip
from phyb.theory.claims import approximation  # isort: skip
from phyb.theory.claims.base import CLAIMS, Claim, Curves, Measured, Variant

__all__ = [
    "CLAIMS",
    "Claim",
    "Curves",
    "Measured",
    "Variant",
    "aggregation",
    "approximation",
    "concentration",
    "improvement",
    "likelihood",
    "monotone",
    "optimality",
    "pessimism",
]
