"""Clusters of training tasks: TF_CONFIG, ports, devices and network."""
