"""The declared optimizer, its schedule, and the compression and clipping of gradients."""
