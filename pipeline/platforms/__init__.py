"""The platforms that a pipeline is compiled for: a folder each, the registry of them, and what they share."""
