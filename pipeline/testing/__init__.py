"""What `tfx_estimator.testing` offers, and the plug-in of pytest."""
