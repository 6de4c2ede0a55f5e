"""The page that a run leaves: what it did, what came of it, and what to look at next."""
