"""Free TCP ports for the tasks of a cluster on this machine."""

from __future__ import annotations

import contextlib
import socket
from collections import deque

# How many ports are remembered: more than a cluster with all its restarts uses before a task that was started binds its
# port.
_REMEMBERED = 1024
_given: deque[int] = deque(maxlen=_REMEMBERED)


def free_ports(count: int) -> list[int]:
    """Finds free ports, none of which was among the last that this process was given.

    TensorFlow's server listens on all interfaces whatever its address says, so a port must be free on all of them.
    Between this call and the task's start any other process may take a port: the task then ends at once, and the
    supervisor starts the cluster again on fresh ports.
    """
    ports: list[int] = []
    with contextlib.ExitStack() as held:
        while len(ports) < count:
            # All ports are held until the end, so that the system hands out a different one each time.
            port = held.enter_context(_bound()).getsockname()[1]
            if port not in _given:
                ports.append(port)
                _given.append(port)
    return ports


def _bound() -> socket.socket:
    """A socket on a port that no interface uses; it does not listen."""
    dual = socket.has_dualstack_ipv6()
    bound = socket.socket(socket.AF_INET6 if dual else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if dual:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(("", 0))
    except OSError:
        bound.close()
        raise
    return bound
