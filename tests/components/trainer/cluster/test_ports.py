"""Free ports, tested with real sockets."""

from __future__ import annotations

import socket

import pytest

from tfx_estimator.components.trainer.cluster.plan import free_ports

EVERYWHERE = [
    (socket.AF_INET, "127.0.0.1"),
    (socket.AF_INET, "0.0.0.0"),
    (socket.AF_INET6, "::1"),
    (socket.AF_INET6, "::"),
]


@pytest.mark.parametrize(("family", "host"), EVERYWHERE)
def test_ports_are_free_on_every_interface(family, host):
    ports = free_ports(8)
    assert len(ports) == 8
    for port in ports:
        try:
            listening = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            pytest.skip("this machine has no IPv6")
        with listening:
            listening.bind((host, port))
            listening.listen()


def test_ports_do_not_repeat():
    # By chance alone, about ten pairs of 500 ports would be equal.
    given = [port for _ in range(50) for port in free_ports(10)]
    assert len(set(given)) == 500


def test_a_port_that_another_socket_holds_is_not_returned():
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(500)]
    try:
        taken = {each.getsockname()[1] for each in held}
        given = {port for _ in range(5) for port in free_ports(100)}
        assert len(given) == 500
        assert not given & taken
    finally:
        for each in held:
            each.close()
