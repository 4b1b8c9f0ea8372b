"""Pictures, and one self-contained HTML page per run."""
