"""The pipeline: its components, configuration, commands and platforms."""
