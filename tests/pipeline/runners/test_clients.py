"""The services' own clients accept compiled pipelines and refuse broken ones; each runs in its own environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.pipeline.runners.deployed import COMMON, CUSTOM_JOB, OF_TARGET, words
from tests.root import ROOT
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW, TARGETS, VERTEX
from tfx_estimator.pipeline.platforms.vertex.custom_job import Plan

pytestmark = [pytest.mark.unit, pytest.mark.long, pytest.mark.timeout(900)]

# Reads a pipeline like the server of Kubeflow Pipelines 2 on upload.
KFP = """
import sys
from kfp import components
loaded = components.load_component_from_file(sys.argv[1])
executors = loaded.pipeline_spec.deployment_spec["executors"]
pods = loaded.platform_spec.platforms["kubernetes"].deployment_spec.executors
print(len([each for each in executors.values() if "container" in each]), len(pods), sorted(pods["Trainer_executor"]))
# Parses the configuration like its backend.
from google.protobuf import json_format
from kfp.kubernetes import kubernetes_executor_config_pb2
config = json_format.ParseDict(
    json_format.MessageToDict(pods["Trainer_executor"]), kubernetes_executor_config_pb2.KubernetesExecutorConfig()
)
print(dict(config.node_selector.labels), [each.toleration_seconds for each in config.tolerations])
"""
# Kubeflow Pipelines also reads the specification within a Vertex AI file.
KFP_OF_VERTEX = """
import json
import sys
from kfp import components
spec = components.load_component_from_text(json.dumps(json.load(open(sys.argv[1]))["pipelineSpec"])).pipeline_spec
executors = spec.deployment_spec["executors"]
print(len([each for each in executors.values() if "container" in each]), len(spec.root.dag.tasks))
"""
VERTEX_AI = """
import json
import sys
from google.auth.credentials import AnonymousCredentials
from google.cloud import aiplatform
job = aiplatform.PipelineJob(
    display_name="digits", template_path=sys.argv[1], project="example-project", location="europe-west4",
    credentials=AnonymousCredentials(), parameter_values={"push_destination": "gs://other/serving"},
)
made = job._gca_resource
tasks = made.pipeline_spec["root"]["dag"]["tasks"]
print(len(tasks), dict(made.runtime_config.parameter_values)["push_destination"])
parameters = tasks["Trainer"]["inputs"]["parameters"]
if "custom_job" in parameters:
    # The job that the step would create, parsed by the client's own type.
    from google.cloud.aiplatform_v1.types import CustomJob
    wanted = json.loads(sys.argv[2])
    specs = CustomJob(wanted).job_spec
    print([pool.replica_count for pool in specs.worker_pool_specs], specs.scheduling.strategy.name)
"""
# Reads a folder of DAGs like Airflow.
AIRFLOW = """
import sys
from airflow.dag_processing.dagbag import DagBag
read = DagBag(sys.argv[1])
for name, error in read.import_errors.items():
    sys.exit(f"{name}: {error}")
print(*sorted((each.task_id, each.retries) for each in read.dags["mine"].tasks))
"""


# Vertex AI, with the Trainer as a custom job.
APART = "apart"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> dict[str, Path]:
    """The preset digits compiled for each target, and with a custom job."""
    folder, files = tmp_path_factory.mktemp("compiled"), {}
    for name, target, more in (*((each, each, ()) for each in TARGETS), (APART, VERTEX, CUSTOM_JOB)):
        files[name] = folder / f"{name}.{'json' if target == VERTEX else 'yaml'}"
        overrides = words(*COMMON, *OF_TARGET[target], *more)
        assert main(["compile", "digits", "--target", target, "--output", str(files[name]), *overrides]) == 0
    return files


@pytest.fixture
def client(tmp_path) -> Callable[..., subprocess.CompletedProcess]:
    """Runs a program on a file, in a new environment with the named packages."""
    uv = next(filter(None, (shutil.which("uv", path=str(ROOT / ".uv" / "bin")), shutil.which("uv"))), None)
    if uv is None:
        pytest.skip("needs uv, to make an environment")
    python = str(tmp_path / "environment" / "bin" / "python")

    def run(program: str, file: Path, *packages: str, more: str = "") -> subprocess.CompletedProcess:
        if not os.path.exists(python):
            made = [uv, "venv", "--quiet", "--python", sys.executable, str(tmp_path / "environment")]
            install = [uv, "pip", "install", "--quiet", "--python", python, *packages]
            if any(subprocess.run(each, check=False, timeout=400).returncode for each in (made, install)):
                pytest.skip(f"{' '.join(packages)} cannot be had from the package registry")
        return subprocess.run([python, "-c", program, str(file), more], capture_output=True, text=True, check=False)

    return run


def test_kubeflow_pipelines_2(compiled, client, tmp_path):
    done = client(KFP, compiled[KUBEFLOW], "kfp==2.16.1", "kfp-kubernetes==2.16.1")
    keys = "['emptyDirMounts', 'nodeSelector', 'podMetadata', 'pvcMount', 'secretAsVolume', 'tolerations']"
    placed = "{'cloud.google.com/gke-nodepool': 'gpus'} [0, 60]"
    assert (done.returncode, done.stdout) == (0, f"9 9 {keys}\n{placed}\n"), done.stderr
    for name in (VERTEX, APART):
        done = client(KFP_OF_VERTEX, compiled[name])
        assert (done.returncode, done.stdout) == (0, "8 10\n"), done.stderr
    spec, platform = yaml.safe_load_all(compiled[KUBEFLOW].read_text())
    spec["root"]["dag"]["taskz"] = spec["root"]["dag"].pop("tasks")
    (broken := tmp_path / "broken.yaml").write_text(yaml.safe_dump_all([spec, platform]))
    refused = client(KFP, broken)
    assert refused.returncode
    assert "taskz" in refused.stderr


def test_vertex_ai(compiled, client, tmp_path):
    done = client(VERTEX_AI, compiled[VERTEX], "google-cloud-aiplatform[pipelines]==1.165.1")
    assert (done.returncode, done.stdout) == (0, "10 gs://other/serving\n"), done.stderr
    whole = json.loads(compiled[APART].read_text())
    inputs = whole["pipelineSpec"]["root"]["dag"]["tasks"]["Trainer"]["inputs"]
    plan = Plan.from_json(inputs["parameters"]["custom_job"]["runtimeValue"]["constant"])
    done = client(VERTEX_AI, compiled[APART], more=json.dumps(plan.to_job("gs://a/step", "gs://a/home")))
    assert (done.returncode, done.stdout) == (0, "10 gs://other/serving\n[1, 2, 2, 1] SPOT\n"), done.stderr
    whole = json.loads(compiled[VERTEX].read_text())
    del whole["pipelineSpec"]["root"]["inputDefinitions"]["parameters"]["push_destination"]
    (broken := tmp_path / "broken.json").write_text(json.dumps(whole))
    refused = client(VERTEX_AI, broken)
    assert refused.returncode
    assert "push_destination" in refused.stderr


def test_airflow_accepts_the_dag_of_the_example(client, tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    dag = (ROOT / "examples" / "airflow" / "dag.py").read_text()
    (dags := tmp_path / "dags").mkdir()
    (dags / "dag.py").write_text(dag)
    providers = (f"apache-airflow-providers-{name}" for name in ("standard", "cncf-kubernetes"))
    done = client(AIRFLOW, dags, "apache-airflow==3.3.2", *providers)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "('here', 2) ('pod', 2) ('service', 2)", done.stdout
    (dags / "dag.py").write_text(dag.replace("arguments=", "argumentz="))
    refused = client(AIRFLOW, dags)
    assert refused.returncode
    assert "argumentz" in refused.stderr
