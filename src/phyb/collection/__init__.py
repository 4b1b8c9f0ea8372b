"""Collect logs from a simulator: SAC is trained online, and its policies and replay buffer become the D4RL kinds."""
