"""Clusters of training tasks: who they are, where they listen, how they live and die."""
