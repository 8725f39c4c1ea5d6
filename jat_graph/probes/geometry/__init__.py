"""Trees in the space of a model's states: the structural probe and what it shows."""
