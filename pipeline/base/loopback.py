"""Connections of gRPC inside this machine, which it would send to a proxy. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def no_proxy(environment: Mapping[str, str], hosts: Iterable[str] = ()) -> dict[str, str]:
    """Returns the variable that keeps gRPC's connections inside this machine from the proxy of `http_proxy`.

    It would take `localhost` there as well, which is another machine for the proxy.

    Args:
        environment: That the process would have; what it keeps from the proxy is kept on.

    Source: https://github.com/grpc/grpc/blob/master/doc/environment_variables.md; tensorflow#24887.
    """
    # The second is not asked where there is the first.
    before = environment.get("no_grpc_proxy") or environment.get("no_proxy") or ""
    kept = [each.strip() for each in before.split(",") if each.strip()]
    return {"no_grpc_proxy": ",".join(dict.fromkeys([*kept, *_LOOPBACK, *hosts]))}
