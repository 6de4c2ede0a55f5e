"""Examines what a cluster on this machine needs of its network. Standard library only."""

from __future__ import annotations

import socket

from tfx_estimator.components.trainer.cluster.ports import free_ports
from tfx_estimator.components.trainer.cluster.private_network import NoPrivateNetworkError, PrivateNetwork
from tfx_estimator.pipeline.doctor.finding import FAILED, WARNING, Finding, ok

_DEADLINE_SECONDS = 5.0


def check_private_network() -> Finding:
    """Clusters on this machine are in a network of their own, unless they are told otherwise."""
    try:
        with PrivateNetwork():
            return ok("private network", "clusters on this machine can have one")
    except NoPrivateNetworkError as error:
        todo = "for clusters set trainer.distribution.network=host where you trust the network: docs/network.md"
        return Finding("private network", WARNING, str(error), todo)


def check_ports() -> Finding:
    """Tasks of a cluster reach each other at localhost."""
    todo = "bring the loopback interface up (ip link set lo up), and have /etc/hosts name localhost"
    try:
        (port,) = free_ports(1)
        with socket.create_server(("localhost", port)) as server:
            server.settimeout(_DEADLINE_SECONDS)
            with socket.create_connection(("localhost", port), _DEADLINE_SECONDS), server.accept()[0]:
                return ok("localhost", "ports can be opened and reached")
    except OSError as error:
        return Finding("localhost", FAILED, f"no port can be opened and reached: {error}", todo)
