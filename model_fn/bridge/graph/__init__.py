"""An exported graph without its network's source, as a layer that Keras trains."""
