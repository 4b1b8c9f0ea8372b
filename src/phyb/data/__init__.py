"""Log in: one transition schema, readers and writers, a validator, behaviour collection."""
