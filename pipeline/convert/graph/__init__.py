"""An exported graph, which no source of a network is left of, as a layer that Keras trains."""
