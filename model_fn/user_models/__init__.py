"""The user's own models: inputs and outputs, checks, and initial weights."""
