"""One file per algorithm: config, init, update, act."""
