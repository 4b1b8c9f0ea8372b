"""The learned environment: a pool of models with units, termination, reward, trust and noise; rollouts in it."""
