"""What a policy is worth: real returns, normalised scores, CVaR, return under the belief."""
