"""The paper's claims, one check each; importing this package registers them all in `CLAIMS`, in reading order."""

from phyb.theory.claims import likelihood, aggregation, pessimism, optimality, approximation  # noqa: F401  # isort: skip
from phyb.theory.claims.base import CLAIMS, Claim, Measured

__all__ = ["CLAIMS", "Claim", "Measured"]
