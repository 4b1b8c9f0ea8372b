"""What we choose to believe: draw N of M members, keep the k that promise least, weigh them, back values up."""
