"""Files on disk: written whole or not at all, checked when read, unable to run code."""
