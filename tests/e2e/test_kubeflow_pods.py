"""Kubeflow Pipelines whose Trainer step trains in pods, through a real API server, reached like from a pod."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tests.e2e.conftest import states_of
from tests.pipeline.platforms.training_jobs.api_server import ACCOUNT_TOKEN, NAMESPACE, TOKEN, ApiServer, api_server
from tests.pipeline.platforms.training_jobs.controllers import Controllers
from tests.pipeline.platforms.training_jobs.networks import Networks
from tests.pipeline.platforms.training_jobs.test_training import DECLARATION, STEPS, steps_of, write_project
from tests.pipeline.runners.deployed import IMAGE, words
from tests.root import ROOT
from tests.waiting import wait_until
from tfx_estimator.pipeline.platforms.training_jobs.kinds import TRAIN_JOB
from tfx_estimator.pipeline.platforms.training_jobs.manifest import pods_of

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]

# The folder of a pod's service account, outside of containers.
AS_A_POD = """\
mount -t tmpfs tmpfs /run
mkdir -p /run/secrets/kubernetes.io/serviceaccount
cp "$0"/* /run/secrets/kubernetes.io/serviceaccount
exec "$@"
"""


@pytest.fixture
def server(tmp_path) -> Iterator[ApiServer]:
    """An API server whose service account has exactly the permissions in docs/kubeflow.md."""
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


def _compile(folder: Path) -> Path:
    """Compiles a user's project with its modules, and removes the project."""
    text = DECLARATION.format(model="networks_of_mine:small", steps=STEPS, image=IMAGE, folder=folder / "volume")
    project, file = write_project(folder / "project", text), folder / "compiled" / "digits.yaml"
    file.parent.mkdir()
    options = (
        "deploy.pipeline_root=gs://a-bucket/pipelines",
        f"deploy.training_root={folder / 'volume' / 'trainings'}",
        "deploy.service_account=trainer",
        "deploy.nodes.default.retries=1",
        "deploy.trainjob.train=true",
    )
    command = [sys.executable, "-m", "tfx_estimator", "compile", "mine.yaml", "--target", "kubeflow", *words(*options)]
    subprocess.run([*command, "--output", str(file)], cwd=project, check=True, capture_output=True, timeout=120)
    shutil.rmtree(project)
    return file


class Execution:
    """`tfx-estimator execute`, whose steps reach the cluster like its pods; the bucket is a folder."""

    def __init__(self, file: Path, server: ApiServer, secrets: Path) -> None:
        self.root, self._log = secrets.parent / "bucket", secrets.parent / "stderr"
        unshare = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--user", "--map-root-user"))]
        start = [*unshare, "sh", "-ec", AS_A_POD, str(secrets)]
        own = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        own |= {"HOME": str(secrets), "KUBERNETES_SERVICE_HOST": "127.0.0.1"}
        own |= {"KUBERNETES_SERVICE_PORT": str(server.port)}
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
            # Without private mounts, for example in a chroot: the account has a kubeconfig.
            text = server.kubeconfig.read_text().replace(TOKEN, ACCOUNT_TOKEN)
            (config := secrets / "config").write_text(text)
            start, own = [], {**own, "KUBECONFIG": str(config)}
        execute = [sys.executable, "-m", "tfx_estimator", "execute", str(file), "--root", str(self.root), "--json"]
        with self._log.open("w") as stderr:
            self.process = subprocess.Popen(
                [*start, *execute, "--require-blessing"],
                cwd=secrets.parent,
                env=own,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def __enter__(self) -> Execution:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def output(self) -> str:
        logs = sorted(self.root.glob("*/logs/*/*.log"))
        return "\n".join(path.read_text(errors="replace")[-4000:] for path in (self._log, *logs[-2:]))

    def until_step(self, step: int, training: Path) -> None:
        def is_done() -> bool:
            assert self.process.poll() is None, self.output
            return max(steps_of(*training.glob("*/logs/chief-0.*.progress.jsonl")), default=-1) >= step

        wait_until(is_done, lambda: f"step {step}: {self.output}", 400, every=0.1)

    def kill_step(self) -> None:
        """Ends the container of the Trainer, like a failing node."""
        (step,) = [
            each
            for each in psutil.Process(self.process.pid).children(recursive=True)
            if "tfx_estimator.components.trainer.executor.Executor" in each.cmdline() and "--home" not in each.cmdline()
        ]
        step.kill()

    def summary(self) -> dict:
        stdout, _ = self.process.communicate(timeout=600)
        assert self.process.returncode == 0, self.output
        return json.loads(stdout)


def test_the_trainer_step_trains_in_pods_and_adopts_its_job_after_a_kill(server, secrets, tmp_path, monkeypatch):
    # It belongs to the user of the tests, not to pods.
    monkeypatch.delenv("KUBECONFIG", raising=False)
    (volume := tmp_path / "volume").mkdir()
    file, training = _compile(tmp_path), volume / "trainings" / "digits-tfjob"
    with Networks(tmp_path) as networks, Controllers(server, tmp_path / "pods", networks=networks) as controllers:
        with Execution(file, server, secrets) as execution:
            execution.until_step(60, training)
            execution.kill_step()
            results = execution.summary()
        # The retry has adopted its job.
        assert sorted(each.split("-", 3)[-1] for each in controllers.started) == ["node-0-0", "node-0-1"]
        listed = server.ask("GET", f"/apis/{TRAIN_JOB.api_version}/namespaces/{NAMESPACE}/trainingruntimes")
        (pods,) = ([{"kind": "TrainingRuntime", **each}] for each in listed["items"])
    *_, (_, pod) = pods_of(pods).values()
    assert (pod["serviceAccountName"], pod["containers"][0]["image"]) == ("trainer", IMAGE)
    assert [each["mountPath"] for each in pod["containers"][0]["volumeMounts"]] == [str(volume)]
    assert (results["training"]["first_step"], results["training"]["last_step"]) == (0, STEPS)
    assert results["accuracy"] > 0.8
    assert results["blessed"] is True
    assert (Path(results["pushed"]) / "saved_model.pb").exists()
    # The completed training is with the other artifacts, not in the volume; the bucket has no training folder.
    assert {path.suffix for path in training.iterdir()} == {".moved"}
    assert list(Path(results["model_run"]).glob(f"model.ckpt-{STEPS}.index"))
    assert not (execution.root / "digits-tfjob" / "training").exists()
    with Execution(file, server, secrets) as execution:
        states = states_of(execution.summary())
    # Its result depends on the models blessed since.
    assert states.pop("BaselineFinder") == "ran"
    assert {*states.values()} == {"cached"}
