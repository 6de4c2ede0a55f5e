"""The update: the declared optimizer, its schedule, and what is done with gradients before it."""
