"""An API server for the tests of all files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pipeline.platforms.training_jobs.api_server import ApiServer, api_server


# An idle one takes 2 % of a core.
@pytest.fixture(scope="package")
def _one_server(tmp_path_factory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("kubernetes")) as server:
        yield server


@pytest.fixture
def server(_one_server, monkeypatch) -> ApiServer:
    """A Kubernetes API server that is this process's current cluster."""
    _know(_one_server, monkeypatch)
    return _one_server


@pytest.fixture
def fresh_server(tmp_path, monkeypatch) -> Iterator[ApiServer]:
    """An API server that the test may stop and start."""
    (folder := tmp_path / "kubernetes").mkdir()
    with api_server(folder) as server:
        _know(server, monkeypatch)
        yield server


def _know(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
