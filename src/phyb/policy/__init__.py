"""What we do about it: mirror step under the mixed potential, regularised value, actor and critics."""
