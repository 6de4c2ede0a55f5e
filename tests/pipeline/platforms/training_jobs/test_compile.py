"""A declaration compiled for the Kubeflow training operator: the pods' settings and the packed modules."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import subprocess
import sys
import zipfile

import pytest
import yaml

import tfx_estimator
from tests.folders import write_files
from tests.pipeline.platforms.training_jobs.cluster import in_pods
from tests.pipeline.runners.deployed import IMAGE, OF_TFJOB, words
from tests.stack import HERE
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.base.errors import RETRYABLE
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.platforms.training_jobs.kinds import TF_JOB
from tfx_estimator.pipeline.platforms.training_jobs.manifest import job_name, make_manifests


def compile_it(tmp_path, source: str, *overrides: str, output: str = "out.yaml") -> tuple[dict, dict]:
    """Compiles with the command line; returns the ConfigMap and the TFJob."""
    path = tmp_path / output
    assert main(["compile", source, "--target", "tfjob", "--output", str(path), *words(*overrides)]) == 0
    config_map, job = yaml.safe_load_all(path.read_text())
    return config_map, job


@pytest.mark.parametrize(
    ("policy", "limit", "wanted"),
    [("ExitCode", 3, 3), ("OnFailure", 3, 19), ("OnFailure", 1, 7), ("OnFailure", 0, 0), ("Never", 0, 0)],
)
def test_the_operator_does_not_give_up_before_the_limit(policy, limit, wanted):
    overrides = (f"deploy.tfjob.restart_policy={policy}", f"deploy.tfjob.backoff_limit={limit}")
    declaration = load("digits", (*OF_TFJOB, *overrides), "tfjob").declaration
    distribution = declaration.trainer.distribution.resolved()
    (job,) = make_manifests("mine", declaration.deploy, "tfjob", distribution, ["true"])
    assert sum(each["replicas"] for each in job["spec"]["tfReplicaSpecs"].values()) == 6
    # One failure restarts every pod's container; the operator fails at its limit of these, or at the first.
    assert job["spec"]["runPolicy"]["backoffLimit"] == wanted
    (container,) = job["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]["containers"]
    assert (RETRYABLE in {each["name"] for each in container["env"]}) == (policy != "Never")


def test_each_type_of_pod_has_its_declared_settings(tmp_path, capsys):
    config_map, job = compile_it(tmp_path, "digits", *OF_TFJOB)
    # The job's own options are in the golden file.
    replicas = job["spec"]["tfReplicaSpecs"]
    counts = {"Chief": 1, "Worker": 2, "PS": 2, "Evaluator": 1}
    assert {name: each["replicas"] for name, each in replicas.items()} == counts
    assert {each["restartPolicy"] for each in replicas.values()} == {"ExitCode"}
    amounts = {}
    for name, each in replicas.items():
        spec = each["template"]["spec"]
        (container,) = spec["containers"]
        amounts[name] = container["resources"]["limits"]
        # Names that the operator requires.
        assert (container["name"], container["ports"][0]["name"]) == ("tensorflow", "tfjob-port")
        assert container["image"] == IMAGE
        by = f"{tfx_estimator.__version__} on {HERE.name}"
        variables = {"EXAMPLE": "value", "TFX_ESTIMATOR_COMPILED_BY": by, RETRYABLE: "138"}
        assert variables.items() <= {each["name"]: each["value"] for each in container["env"]}.items()
        # Patches for all pods, for those of the training, and for a type.
        assert spec["nodeSelector"] == {"pool": "train", "cloud.google.com/gke-nodepool": "gpus"}
        assert [each["key"] for each in spec.get("tolerations", ())] == (
            [] if name == "PS" else ["nvidia.com/gpu", "spot"]
        )
        mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
        only_read = dict.fromkeys(("/mnt/data", "/secrets/key", "/etc/tfx-estimator"), True)
        assert mounts == {"/mnt/work": False, **only_read, **({} if name == "PS" else {"/dev/shm": False})}
        mounted = next(each["configMap"] for each in spec["volumes"] if each["name"] == "declaration")
        assert mounted["name"] == config_map["metadata"]["name"]
    assert amounts == {
        "Chief": (trains := {"cpu": "8000m", "memory": "8000M", "nvidia.com/gpu": "2"}),
        "Worker": trains,
        "PS": {"cpu": "8000m", "memory": "16000M"},
        "Evaluator": {"cpu": "1500m", "memory": "8000M", "nvidia.com/gpu": "1"},
    }
    delete = "delete tfjobs digits --ignore-not-found --cascade=foreground --wait --namespace vision"
    delete_map = "delete configmaps --selector tfx-estimator/pipeline=digits --namespace vision"
    compile_it(tmp_path, "digits", *OF_TFJOB, "deploy.tfjob.context=arn:of/mine it", output="my other.yaml")
    stdout = capsys.readouterr().out
    mine = "kubectl --context 'arn:of/mine it'"
    applied = f"{mine} apply --server-side --filename '{tmp_path}/my other.yaml'"
    assert f"replacing an earlier one: {mine} {delete} && {mine} {delete_map} && {applied}\n" in stdout
    assert "kubectl --context 'arn:of/mine it' logs --follow digits-chief-0 --namespace vision" in stdout


@pytest.mark.parametrize(("size", "limit"), [("null", {}), ("2.5", {"sizeLimit": "2500M"})])
def test_pods_with_accelerators_share_memory_and_with_a_declared_size_all_pods(tmp_path, size, limit):
    _, job = compile_it(tmp_path, "digits", *OF_TFJOB, f"deploy.shared_memory_gb={size}")
    specs = {name: each["template"]["spec"] for name, each in job["spec"]["tfReplicaSpecs"].items()}
    memory = {
        name: [each["emptyDir"] for each in spec["volumes"] if each["name"] == "shm"] for name, spec in specs.items()
    }
    mounted = [{"medium": "Memory", **limit}]
    assert memory == {"Chief": mounted, "Worker": mounted, "PS": mounted if limit else [], "Evaluator": mounted}


def test_a_declared_volume_is_the_shared_memory(tmp_path):
    volumes = "deploy.volumes=[{claim: work, path: /mnt/work}, {claim: fast, path: /dev/shm}]"
    _, job = compile_it(tmp_path, "digits", *OF_TFJOB, volumes)
    spec = job["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]
    (mount,) = (each for each in spec["containers"][0]["volumeMounts"] if each["mountPath"] == "/dev/shm")
    claims = {
        each["name"]: each["persistentVolumeClaim"] for each in spec["volumes"] if each["name"].startswith("volume")
    }
    assert claims[mount["name"]]["claimName"] == "fast"


def test_the_pods_read_the_same_declaration(tmp_path):
    config_map, job = compile_it(tmp_path, "digits", *OF_TFJOB, "trainer.stall_timeout=71")
    (tmp_path / "declaration.yaml").write_text(config_map["data"]["declaration.yaml"])
    found, here = load(tmp_path / "declaration.yaml").declaration, load("digits", OF_TFJOB[:4]).declaration
    assert found.deploy is None
    assert found.trainer.stall_timeout == 71
    assert found.data == here.data
    command = job["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]["containers"][0]["command"]
    assert command == ["tfx-estimator", "run", "/etc/tfx-estimator/declaration.yaml", "--workdir", "/mnt/work/runs"]


def test_the_users_modules_are_packed_in_the_file(tmp_path):
    files = {
        "mine.yaml": "name: mine\ndata: {dataset: mnist}\ntransform: {module_file: own/prepare.py}\n"
        "trainer: {model: 'own_networks:small', train_steps: 9}\n",
        "own_networks.py": "import layers_of_mine\n\ndef small(num_classes):\n    return 1\n",
        "layers_of_mine.py": "SIDES = 4\n",
        "own/prepare.py": "def preprocessing_fn(inputs):\n    return inputs\n",
    }
    project, mounted = write_files(tmp_path / "project", files), tmp_path / "etc"
    config_map, job = compile_it(tmp_path, str(project / "mine.yaml"), *OF_TFJOB[:4])
    wheel = base64.b64decode(config_map["binaryData"]["modules.whl"])
    with zipfile.ZipFile(io.BytesIO(wheel)) as packed:
        assert {"own_networks.py", "layers_of_mine.py"} <= {*packed.namelist()}
    assert config_map["data"]["prepare.py"] == files["own/prepare.py"]
    assert yaml.safe_load(config_map["data"]["declaration.yaml"])["transform"]["module_file"] == "prepare.py"
    command = in_pods(config_map, job, mounted)
    assert hashlib.sha256(wheel).hexdigest() in command
    # The part of a container's command that unpacks the user's modules.
    here = command[: command.index("--") + 1]
    ask = [sys.executable, "-c", "import own_networks; print(own_networks.layers_of_mine.SIDES)"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = subprocess.run([*here, *ask], capture_output=True, text=True, check=True, cwd=mounted, env=environment)
    assert ran.stdout.strip() == "4"
    found = load(mounted / "declaration.yaml", ["trainer.model=mnist_cnn"]).declaration
    assert found.transform.module_file == str(mounted / "prepare.py")


def test_a_module_file_of_any_encoding_is_packed(tmp_path):
    code = "# -*- coding: latin-1 -*-\n# größer\ndef preprocessing_fn(inputs):\n    return inputs\n".encode("latin-1")
    (tmp_path / "prepare.py").write_bytes(code)
    override = f"transform.module_file={tmp_path / 'prepare.py'}"
    config_map, job = compile_it(tmp_path, "digits", *OF_TFJOB[:4], override)
    assert base64.b64decode(config_map["binaryData"]["prepare.py"]) == code
    volumes = job["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]["volumes"]
    items = next(each["configMap"]["items"] for each in volumes if each["name"] == "declaration")
    assert {"key": "prepare.py", "path": "prepare.py"} in items


def test_two_pipelines_share_no_object_name():
    fits = "a" * 51
    assert job_name(TF_JOB, fits) == fits
    assert job_name(TF_JOB, "digits", "one training") != job_name(TF_JOB, "digits", "another")
    names = ["mine", "mine-", "mine--", fits, f"{fits}-", f"{fits}b", f"{fits}c", "b" * 63, "b" * 62 + "-"]
    made = [job_name(TF_JOB, name) for name in names]
    assert len({*made}) == len(names)
    for name in made:
        assert len(f"{name}-evaluator-0") <= 63
        assert name == name.strip("-")


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_the_pods_may_keep_everything_in_a_bucket(tmp_path, scheme):
    two = "trainer.distribution.train={strategy: multi_worker_mirrored, workers: 2}"
    _, job = compile_it(tmp_path, "digits", OF_TFJOB[0], f"deploy.pipeline_root={scheme}://bucket/runs", two)
    for replicas in job["spec"]["tfReplicaSpecs"].values():
        (container,) = replicas["template"]["spec"]["containers"]
        assert container["command"][-2:] == ["--workdir", f"{scheme}://bucket/runs"]


def test_the_declaration_is_not_overwritten(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    text = "name: mine\ndata: {dataset: digits, splits: {train: 'train[:80%]', eval: 'train[80%:]'}}\n"
    (tmp_path / "mine.yaml").write_text(text + "trainer: {model: mnist_cnn, train_steps: 5000}\n")
    compiles = ["compile", "mine.yaml", "--target", "tfjob", *words(*OF_TFJOB)]
    assert "mine.yaml is the declaration itself" in cli(*compiles, "--force", "--output", "mine.yaml", code=2).err
    # Not even by default, although it has the name of its pipeline.
    assert "wrote mine-tfjob.yaml: mine for tfjob" in cli(*compiles).out
    assert "kind: TFJob" in (tmp_path / "mine-tfjob.yaml").read_text()
    assert (tmp_path / "mine.yaml").read_text().startswith(text)


def test_a_run_on_this_machine_does_not_train_here_what_is_to_train_in_pods(tmp_path, cli):
    error = cli("run", "digits", "--workdir", str(tmp_path), *words("deploy.trainjob.train=true"), code=2).err
    assert "--target trainjob" in error
    assert not list(tmp_path.glob("*/artifacts"))
    assert (
        "did you mean `deploy.trainjob.train`?"
        in cli("validate", "digits", *words("deploy.tfjob.train=true"), code=2).err
    )
