"""The belief over models: draw N of M members, keep the k of least backup, weigh them, back values up."""
