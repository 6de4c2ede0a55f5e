"""The image trains like for its users: not as root, on a read-only root, without a network."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.image.conftest import run
from tests.image.test_compose import words
from tests.root import ROOT
from tfx_estimator import __version__
from tfx_estimator.components.trainer.protocol.events import Event, ProgressReader

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(2400)]
MOST_MEGABYTES = {"tfx1.15": 2200, "tfx1.21": 2600}
_NETWORK, _SUBNET = "tfx-estimator-tests", "10.89.177"


def test_its_contents(image, work):
    assert image.run(work, "-c", "id -u", entry="sh").strip() == "10001"
    packages = image.run(work, "-m", "pip", "list", "--format=freeze", entry="python")
    names = {line.partition("==")[0].lower() for line in packages.splitlines()}
    assert {"tfx", "tensorflow-cpu", "tfx-estimator"} <= names
    assert not names & {"pytest", "ruff", "mypy", "hypothesis", "import-linter", "ipython", "jupyter-core", "keyring"}
    # No tools to change the user, to test packages, or to install again.
    left = "find / -xdev -type f -perm /6000; find /opt -name testdata -o -name tests -o -name '*.whl'"
    assert image.run(work, "-c", left, entry="sh") == ""
    (inspected,) = json.loads(run("podman", "image", "inspect", image.name))
    assert inspected["Labels"]["org.opencontainers.image.version"] == __version__
    # Nothing of this machine's access to packages, except the empty mount points.
    assert image.run(work, "-c", "cat /etc/pip.conf /etc/uv/uv.toml 2>/dev/null; true", entry="sh") == ""
    doctor = image.run(work, "doctor", "--quick")
    stack = re.search(r"^ok +stack +(\S+):", doctor, re.MULTILINE)
    assert stack
    assert image.megabytes <= MOST_MEGABYTES[stack[1]]
    assert len(inspected["RootFS"]["Layers"]) <= 5


def test_a_whole_pipeline_in_a_container(image, work):
    output = image.run(work, "run", "digits")
    assert _pushed(work), output
    # A second container uses the first one's outputs.
    written = image.run(work, "report", "runs/digits").removeprefix("wrote /work/").strip()
    assert "accuracy" in (work / written).read_text()


def test_a_cluster_of_two_in_a_container(image, work):
    train = "trainer.distribution.train={strategy: multi_worker_mirrored, workers: 2}"
    output = image.run(work, "run", "digits", "--set", train)
    assert _pushed(work), output
    # From the reports of each task: without a terminal, stdout has one line in five seconds.
    (logs,) = work.glob("**/model_run/*/logs")
    for task in ("chief-0", "worker-0"):
        (path,) = logs.glob(f"{task}.*.progress.jsonl")
        steps = [each["step"] for each in ProgressReader(str(path)).read() if each["event"] is Event.STEP]
        assert steps[-1] == 600, (task, steps)


@pytest.fixture
def network() -> Iterator[str]:
    run("podman", "network", "create", "--subnet", f"{_SUBNET}.0/24", _NETWORK)
    try:
        yield _NETWORK
    finally:
        run("podman", "network", "rm", "--force", _NETWORK)


def test_three_containers_as_compose_declares_them(image, work, network):
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    # Each has its own address, and a name like from Docker's resolver.
    addresses = {name: f"{_SUBNET}.{number}" for number, name in enumerate(services, 10)}
    hosts = [word for name, address in addresses.items() for word in ("--add-host", f"{name}:{address}")]
    running = []
    try:
        for name, service in services.items():
            command = words(service["command"])
            assert (service["read_only"], service["tmpfs"], service["cap_drop"]) == (True, ["/tmp"], ["ALL"])
            security = [word for each in service["security_opt"] for word in ("--security-opt", each)]
            variables = [word for each in service["environment"].items() for word in ("--env", "=".join(each))]
            options = (*variables, *security, *hosts, "--name", f"tests-{name}", "--ip", addresses[name])
            started = image.command(work, *command, options=options, network=network)
            running.append(subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        outputs = [each.communicate(timeout=900)[0] for each in running]
    finally:
        for each in running:
            each.kill()
    assert [each.returncode for each in running] == [0, 0, 0], outputs
    assert _pushed(work), outputs


def _pushed(work: Path) -> list[Path]:
    return list(work.glob("**/serving/*/saved_model.pb"))
