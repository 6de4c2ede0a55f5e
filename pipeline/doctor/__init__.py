"""Checks of this machine for `tfx-estimator doctor`."""
