"""The loop: compiled chunks of updates, progress, metrics, checkpoints, the run folder."""
