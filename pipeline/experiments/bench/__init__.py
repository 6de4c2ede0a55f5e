"""`tfx-estimator bench`: measures distribution strategies on the user's declaration."""
