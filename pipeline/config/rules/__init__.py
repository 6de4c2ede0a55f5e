"""Rules of the declaration: a table per section, and the engine that evaluates them."""
