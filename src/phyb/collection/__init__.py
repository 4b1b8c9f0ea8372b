"""Logs from a simulator: an online learner is trained, and its past, its middle and its end become the D4RL kinds."""
