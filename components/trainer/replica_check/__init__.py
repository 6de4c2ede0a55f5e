"""Checks that a user's code trains correctly under several replicas."""
