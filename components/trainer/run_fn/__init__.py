"""The run_fn path: TFX's generic contract, whatever the function trains with."""
