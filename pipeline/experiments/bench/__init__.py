"""`tfx-estimator bench`: which distribution strategy pays, measured on the user's own declaration."""
