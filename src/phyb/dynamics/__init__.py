"""What the log says about the world: one Gaussian model, and a pool of them trained side by side."""
