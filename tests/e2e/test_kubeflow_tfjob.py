"""The Workflow of Kubeflow Pipelines 1 whose Trainer trains in a TFJob: by a real API server, as a pod reaches it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import open_metadata
from tests.e2e.workflow import Container, containers, execute
from tests.pipeline.platforms.training_jobs.api_server import ACCOUNT_TOKEN, NAMESPACE, ApiServer, api_server
from tests.pipeline.platforms.training_jobs.operator import Operator
from tests.pipeline.platforms.training_jobs.test_training import DECLARATION, STEPS, write_project
from tests.pipeline.runners.deployed import IMAGE
from tests.root import ROOT
from tests.waiting import wait_until
from tfx_estimator.components.trainer.protocol.events import Event, ProgressReader

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]

# A pod's own folder of its account's, where no container is.
AS_A_POD = """\
mount -t tmpfs tmpfs /run
mkdir -p /run/secrets/kubernetes.io/serviceaccount
cp "$0"/* /run/secrets/kubernetes.io/serviceaccount
exec "$@"
"""


@pytest.fixture
def server(tmp_path) -> Iterator[ApiServer]:
    """An API server that lets a service account do what docs/kubeflow.md says that it needs, and no more."""
    (folder := tmp_path / "kubernetes").mkdir()
    with api_server(folder, roles=True) as found:
        (text,) = re.findall(r"```text\n(# trainer-role\.yaml\n.*?)```", (ROOT / "docs/kubeflow.md").read_text(), re.S)
        for each in yaml.safe_load_all(text):
            each["metadata"]["namespace"] = NAMESPACE
            for subject in each.get("subjects", ()):
                subject["namespace"] = NAMESPACE
            path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/{each['kind'].lower()}s"
            found.ask("POST", path, each)
        yield found


@pytest.fixture
def secrets(server, tmp_path) -> Path:
    (folder := tmp_path / "account").mkdir()
    (folder / "token").write_text(ACCOUNT_TOKEN)
    (folder / "namespace").write_text(NAMESPACE)
    shutil.copy(server.folder / "certs" / "apiserver.crt", folder / "ca.crt")
    return folder


@contextlib.contextmanager
def _started(container: Container, server: ApiServer, secrets: Path, log: Path) -> Iterator[subprocess.Popen]:
    names = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--user", "--map-root-user"))]
    own = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    own |= {"HOME": str(secrets), "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
    with log.open("ab") as said:
        process = subprocess.Popen(
            [*names, "sh", "-ec", AS_A_POD, str(secrets), *container.words],
            cwd=secrets.parent,
            env={**own, **container.environment},
            stdout=said,
            stderr=said,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _until_step(step: int, work: Path, process: subprocess.Popen, log: Path) -> None:
    def is_done() -> bool:
        if _step(work) >= step:
            return True
        assert process.poll() is None, log.read_text()
        return False

    wait_until(is_done, lambda: f"step {step}: {log.read_text()}", 300, every=0.1)


def _step(work: Path) -> int:
    files = work.glob("artifacts/Trainer/training/*/logs/chief-0.*.progress.jsonl")
    events = [each for file in files for each in ProgressReader(str(file)).read()]
    return max((each["step"] for each in events if each["event"] is Event.STEP), default=-1)


def _compile(folder: Path) -> Path:
    """Compiles a user's project, whose modules travel; the project goes."""
    (work := folder / "work").mkdir()
    text = DECLARATION.format(model="networks_of_mine:small", steps=STEPS, image=IMAGE, folder=work)
    project, file = write_project(folder / "project", text), folder / "compiled" / "digits.yaml"
    file.parent.mkdir()
    told = (
        f"deploy.pipeline_root={work}/artifacts",
        "deploy.service_account=trainer",
        "deploy.nodes.default.retries=2",
    )
    overrides = [word for each in told for word in ("--set", each)]
    command = [sys.executable, "-m", "tfx_estimator", "compile", "mine.yaml", "--target", "kubeflow", *overrides]
    subprocess.run([*command, "--output", str(file)], cwd=project, check=True, capture_output=True, timeout=120)
    shutil.copytree(file.parent, work / "modules", ignore=shutil.ignore_patterns("*.yaml"), dirs_exist_ok=True)
    shutil.rmtree(project)
    return file


def _properties(folder: Path) -> dict[str, float]:
    """What the published model run carries of its training."""
    from ml_metadata.proto import metadata_store_pb2

    found = open_metadata(folder).get_artifacts_by_type("ModelRun")
    (run,) = [each for each in found if each.state == metadata_store_pb2.Artifact.LIVE]
    return {name: value.double_value for name, value in run.custom_properties.items()}


def test_the_trainers_step_trains_in_a_tfjob_is_cancelled_and_goes_on_and_is_killed_and_adopts(
    server, secrets, tmp_path, monkeypatch
):
    # Of who runs the tests, not of pods.
    monkeypatch.delenv("KUBECONFIG", raising=False)
    file, work, log = _compile(tmp_path), tmp_path / "work", tmp_path / "trainer.log"
    values = {"pipeline-root": f"{work}/artifacts", "push_destination": f"{work}/serving"}
    jobs = f"/apis/kubeflow.org/v1/namespaces/{NAMESPACE}/tfjobs"
    with containers(file, tmp_path, "digits-1", values) as found, Operator(server, tmp_path / "pods") as operator:
        for each in found:
            if each.name != "trainer":
                execute(each, tmp_path)
                continue
            with _started(each, server, secrets, log) as process:
                _until_step(60, work, process, log)
                # As Argo ends a step.
                process.send_signal(signal.SIGTERM)
                assert process.wait(200) != 0
            assert "is deleted; the last checkpoint is of step" in log.read_text()
            assert server.ask("GET", jobs)["items"] == []
            before = _step(work)
            with _started(each, server, secrets, log) as process:
                _until_step(before + 1, work, process, log)
                process.kill()
            started = len(operator.started)
            # As Argo tries again.
            with _started(each, server, secrets, log) as process:
                assert process.wait(600) == 0, log.read_text()
            assert "of this training is there: going on with it" in log.read_text()
            assert len(operator.started) == started
            (job,) = server.ask("GET", jobs)["items"]
            pod = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
            assert pod["serviceAccountName"] == "trainer"
            assert pod["containers"][0]["image"] == IMAGE
    told = _properties(tmp_path)
    assert told["first_step"] >= 50
    assert told["last_step"] == STEPS
    assert told["examples_per_second"] > 0
    assert told["eval_accuracy"] > 0.8
    assert len(list((work / "serving").glob("*/saved_model.pb"))) == 1
