"""Policies where they are used: files for other programs, a small service, and a watch over new logs."""
