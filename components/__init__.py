"""One package per TFX component."""
