"""The section `deploy`: `validate --target` lists all problems at once, each with a fix."""

from __future__ import annotations

import json
from importlib.machinery import EXTENSION_SUFFIXES

import pytest
import yaml

from tests.folders import write_files
from tests.pipeline.runners.deployed import (
    COMMON,
    OF_STEP_IN_PODS,
    OF_TARGET,
    OF_TFJOB,
    OF_TRAINJOB,
    as_sections,
    refused,
)
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.platforms.registry import ALL_TARGETS, TARGETS
from tfx_estimator.pipeline.platforms.vertex.rules import REGIONS

WHOLE = {
    "": (),
    "tfjob": OF_TFJOB,
    "trainjob": OF_TRAINJOB,
    **{target: (*COMMON, *OF_TARGET[target]) for target in TARGETS},
}
VOLUME = "deploy.volumes=[{claim: data, path: /mnt/data}]"
DATAFLOW = "project: mine-12, region: europe-west4, temp_location: gs://mine/tmp, sdk_container_image: mine/image"
FLINK = "runner: portable, job_endpoint: flink-jobs:8099, environment_type: EXTERNAL, environment_config: localhost:5"
HERE = "runner: portable, job_endpoint: localhost:1, artifact_endpoint: 127.0.0.1:2, environment_type: LOOPBACK"
SMALL = (
    "name: mine\ndata: {dataset: digits, splits: {train: 'train[:80%]', eval: 'train[80%:]'}}\n"
    "trainer: {model: 'networks:small', train_steps: 9}\n"
)


@pytest.mark.parametrize("target", TARGETS)
def test_a_complete_declaration_is_accepted(target):
    deploy = load("digits", WHOLE[target], target).declaration.deploy
    trainer, pusher = deploy.nodes.of("Trainer"), deploy.nodes.of("Pusher")
    assert (trainer.retries, trainer.cpu, pusher.cpu) == (3, 8, 2)


@pytest.mark.parametrize(
    ("target", "wanted"),
    [("tfjob", ["image", "pipeline_root"]), ("vertex", ["image", "project", "region", "pipeline_root"])],
)
def test_without_the_section_all_required_keys_are_named(target, wanted):
    problems = refused(target)
    assert len(problems) == len(wanted)
    for key in wanted:
        assert any(f"deploy.{key} the target {target} needs it" in problem for problem in problems)


def test_all_paths_of_this_machine_are_named(tmp_path):
    local = (
        f"data.data_dir={tmp_path}",
        f"pusher.destination={tmp_path}",
        "beam={runner: portable, job_endpoint: 'localhost:8099'}",
        f"deploy.pipeline_root={tmp_path}",
        f"trainer.warm_start={{checkpoint: {tmp_path}}}",
    )
    problems = refused("kubeflow", *COMMON, *local)
    for path in ("data.data_dir", "pusher.destination", "beam.job_endpoint", "deploy.pipeline_root"):
        assert any(f"{path}: " in problem and "on this machine, and" in problem for problem in problems), path
    assert any("trainer.warm_start" in problem and "from this machine only" in problem for problem in problems)


def test_a_root_in_s3_is_accepted_on_kubeflow():
    root = "deploy.pipeline_root=s3://bucket/x"
    assert load("digits", (*WHOLE["kubeflow"], root), "kubeflow").declaration.deploy.pipeline_root == "s3://bucket/x"


def test_paths_in_a_volume_are_accepted():
    mine = ("data.data_dir=/mnt/data/tfds", "pusher.destination=/mnt/data/out")
    load("mnist", (*COMMON, VOLUME, *mine), "kubeflow")
    # Kubeflow's backend keeps artifacts in an object store.
    (problem,) = refused("kubeflow", *COMMON, VOLUME, *mine, "deploy.pipeline_root=/mnt/data/runs", source="mnist")
    assert "deploy.pipeline_root" in problem
    load("mnist", (*OF_TFJOB, *mine[:1], "pusher.destination=/mnt/work/out"), "tfjob")


def test_a_targets_name_in_an_earlier_release_stays_valid():
    new, former = (load("digits", WHOLE["kubeflow"], target) for target in ("kubeflow", "kubeflow_v2"))
    assert (new.declaration, new.notes) == (former.declaration, former.notes)
    with pytest.raises(DeclarationError, match="there is no target 'kubeflow_v3'"):
        load("digits", (), "kubeflow_v3")


_LONE = "trainer.distribution={train: {strategy: multi_worker_mirrored, workers: 1}, evaluator: true}"
_HIDDEN = "would be readable"
# (target, override of WHOLE, place of the problem, part of it).
REFUSED = [
    ("", "deploy.image=tfx:latest", "deploy.image", "not pinned by its digest"),
    ("", "deploy.nodes.Trainer.accelerators=2", "deploy.nodes.Trainer.accelerators", "type of accelerator is missing"),
    ("", "deploy.vertex={machine: {accelerator: nvidia.com/gpu}}", "machine.accelerator", "no such accelerator"),
    ("vertex", "deploy.pipeline_root=s3://bucket/x", "deploy.pipeline_root", "the steps use gs:// alone"),
    ("kubeflow", "deploy.pipeline_root=hdfs://x/y", "deploy.pipeline_root", "the steps use gs:// and s3:// alone"),
    ("kubeflow", "deploy.pipeline_root=/mnt/data/../x", "deploy.pipeline_root", "on this machine, and"),
    ("tfjob", "deploy.pipeline_root=hdfs://x/y", "deploy.pipeline_root", "the steps use gs:// and s3:// alone"),
    ("kubeflow", "pusher.destination=/mnt/other/x", "pusher.destination", "on this machine, and"),
    ("kubeflow", "deploy.volumes=[{claim: a, path: /x, read_only: true}]", "deploy.volumes", "lets steps write"),
    ("vertex", VOLUME, "deploy.volumes", "Vertex AI Pipelines has none"),
    ("vertex", "deploy.shared_memory_gb=2", "deploy.shared_memory_gb", "Vertex AI Pipelines has none"),
    ("kubeflow", "deploy.vertex={}", "deploy.vertex", "for the target vertex only"),
    ("tfjob", "deploy.nodes.Trainer.retries=1", "deploy.nodes.Trainer.retries: 1", "deploy.tfjob.backoff_limit"),
    ("kubeflow", "deploy.nodes.Trainer.accelerator=NVIDIA_TESLA_T4", "Trainer.accelerator", "no such accelerator"),
    ("vertex", "beam.options=[--s3_secret_access_key=abc]", "beam.options", _HIDDEN),
    ("vertex", "deploy.env.AWS_SECRET_ACCESS_KEY=abc", "deploy.env.AWS_SECRET_ACCESS_KEY", _HIDDEN),
    ("tfjob", "deploy.env.GITHUB_TOKEN=abc", "deploy.env.GITHUB_TOKEN", _HIDDEN),
    ("kubeflow", "trainer.params={wandb: {api_key: abc}}", "trainer.params.wandb.api_key", _HIDDEN),
    ("vertex", "trainer.params={my_token: ghp_8Hw4Zc1Lq9Vt5Xe2}", "trainer.params.my_token", _HIDDEN),
    ("tfjob", _LONE, "trainer.distribution.evaluator", "does not know of an evaluator"),
    ("tfjob", "tune={ranges: {trainer.seed: [1, 2]}}", "tune", "no trials"),
]


@pytest.mark.parametrize(("target", "override", "place", "text"), REFUSED)
def test_a_wrong_value_is_refused(target, override, place, text):
    assert any(place in problem and text in problem for problem in refused(target, *WHOLE[target], override))


@pytest.mark.parametrize(
    ("target", "override", "place", "text"),
    [
        ("kubeflow", "deploy.volumes=[]", "deploy.training_root: /mnt/work/trainings", "which no bucket holds"),
        ("kubeflow", "deploy.training_root=null", "deploy.training_root", "which no bucket holds"),
        ("kubeflow", "deploy.training_root=gs://a-bucket/x", "deploy.training_root", "which no bucket holds"),
        ("kubeflow", "deploy.trainjob.context=there", "deploy.trainjob.context", "has no kubeconfig"),
        ("kubeflow", _LONE, "trainer.distribution.evaluator", "does not know of an evaluator"),
        ("kubeflow", "tune={ranges: {trainer.seed: [1, 2]}}", "tune", "no trials"),
        ("kubeflow", "deploy.trainjob.kind=JobSet", "deploy.trainjob.kind: JobSet", "starts TrainJobs alone"),
        ("vertex", "deploy.volumes=[]", "deploy.trainjob.train", "a step of the target vertex"),
    ],
)
def test_a_declaration_that_a_steps_pods_cannot_train_is_refused(target, override, place, text):
    problems = refused(target, *OF_STEP_IN_PODS, override)
    assert len([problem for problem in problems if place in problem and text in problem]) == 1


def test_a_step_that_trains_in_pods_has_a_note_of_the_job_it_leaves_running():
    def messages(*overrides: str) -> tuple[list[str], tuple[str, ...]]:
        loaded = load("digits", (*OF_STEP_IN_PODS, *overrides), "kubeflow")
        return [note for note in loaded.notes if "leaves its TrainJob running" in note], loaded.warnings

    (_,), warnings = messages()
    assert not warnings
    none, warnings = messages("deploy.trainjob.train=false")
    assert not none
    assert [each.partition(":")[0].split()[-1] for each in warnings] == ["deploy.training_root"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("beam", [FLINK, f"runner: dataflow, dataflow: {{{DATAFLOW}}}"])
def test_any_beam_runner_that_the_steps_reach_is_accepted(beam, target):
    loaded = load("mnist", (*WHOLE[target], f"beam={{{beam}}}", "data.data_dir=gs://mine/tfds"), target)
    notes = [note for note in loaded.notes if "leaves its Dataflow job running" in note]
    assert bool(notes) == (beam != FLINK and target == "kubeflow")


@pytest.mark.parametrize(
    ("beam", "target", "paths"),
    [
        (HERE, "vertex", ["beam.job_endpoint", "beam.artifact_endpoint", "beam.environment_type"]),
        ("runner: dataflow", "vertex", ["beam.runner"]),
        (f"runner: dataflow, dataflow: {{{DATAFLOW}}}", "kubeflow", ["data.data_dir"]),
    ],
)
def test_each_missing_part_of_a_beam_runner_is_named_once(beam, target, paths):
    mine = (VOLUME, "data.data_dir=/mnt/data/tfds") if target == "kubeflow" else ("data.data_dir=gs://mine/tfds",)
    problems = refused(target, *WHOLE[target], *mine, f"beam={{{beam}}}", source="mnist")
    assert [path for path in paths if not any(f" {path}" in problem for problem in problems)] == []
    assert len(problems) == len(paths)


def test_data_that_the_compiling_machine_cannot_read_has_a_note(tmp_path):
    def data_notes(*arguments) -> list[str]:
        return [note for note in load(*arguments).notes if note.startswith("data.data_dir: ")]

    volume = f"deploy.volumes=[{{claim: data, path: /mnt/data}}, {{claim: here, path: {tmp_path}}}]"
    mine = (*WHOLE["kubeflow"], volume)
    elsewhere, here = (*mine, "data.data_dir=/mnt/data/tfds"), (*mine, f"data.data_dir={tmp_path}")
    (note,) = data_notes("mnist", elsewhere, "kubeflow")
    assert note.startswith("data.data_dir: /mnt/data/tfds is not on this machine, so the fingerprint")
    assert data_notes("mnist", here, "kubeflow") == data_notes("digits", elsewhere, "kubeflow") == []
    assert data_notes("mnist", (*WHOLE["vertex"], "data.data_dir=gs://mine/tfds"), "vertex") == []


def test_modules_that_cannot_be_shipped_are_listed_with_other_problems(tmp_path):
    files = {
        "sched.py": "def small(num_classes):\n    import fast, faster\n",
        f"fast{EXTENSION_SUFFIXES[0]}": "",
        f"faster{EXTENSION_SUFFIXES[0]}": "",
        "a/prepare.py": "import helpers\n\ndef preprocessing_fn(inputs):\n    return inputs\n",
        "a/helpers.py": "",
        "helpers.py": "",
        "networks.py": "import helpers\n\ndef small(num_classes):\n    return 1\n",
        "huge.py": f"TEXT = '{'x' * 900_000}'\n\ndef small(num_classes):\n    return 1\n",
        "b/prepare.py": "def trainer_fn(fn_args, schema):\n    pass\n",
        "mine.yaml": SMALL.replace("networks", "sched"),
    }
    source = write_files(tmp_path, files) / "mine.yaml"
    load(source)
    for target in ALL_TARGETS:
        with pytest.raises(DeclarationError) as caught:
            load(source, (), target)
        message = str(caught.value)
        for each in ("sched.py, has the name of a standard module", "fast is compiled", "faster is compiled"):
            assert message.count(each) == 1
        assert "deploy.image" in message
    own = (f"transform.module_file={tmp_path / 'a/prepare.py'}", "trainer.model=networks:small")
    same = (own[0], "trainer.model=null", f"trainer.module_file={tmp_path / 'b/prepare.py'}")
    for overrides, match in (
        (own, "two modules are called helpers"),
        (same, "two module files of one name"),
        (("trainer.model=huge:small",), "too many for a ConfigMap"),
    ):
        with pytest.raises(DeclarationError, match=match):
            load(source, (*OF_TFJOB[:4], *overrides), "tfjob")
    # Each step of a managed service imports only its own modules.
    with pytest.raises(DeclarationError) as caught:
        load(source, own, "vertex")
    assert "helpers" not in str(caught.value)


def test_packages_that_the_image_needs_are_noted_for_a_target_only(tmp_path):
    source = tmp_path / "mine.yaml"
    source.write_text(SMALL)
    (tmp_path / "networks.py").write_text("import hypothesis, pytest, yaml\n\ndef small(num_classes):\n    return 1\n")
    place = f"{tmp_path}/networks.py"
    for target in TARGETS:
        notes = " ".join(load(source, WHOLE[target], target).notes)
        assert f"packages that your modules import: hypothesis ({place}:1), pytest ({place}:1)" in notes
    assert not load(source).notes
    (tmp_path / "networks.py").write_text("import nowhere_to_be_found\n\ndef small(num_classes):\n    return 1\n")
    for target in TARGETS:
        assert f"your modules import: nowhere_to_be_found ({place}:1)" in " ".join(
            load(source, WHOLE[target], target).notes
        )


def test_a_variable_may_name_a_secrets_file():
    paths = {"GITHUB_TOKEN_FILE": "secrets/x", "AWS_SECRET": "/secrets/key/aws", "TOKEN": "/mnt/data/token"}
    paths |= {"MY_SECRETS_DIR": "/opt/x", "TOKENIZERS_PARALLELISM": "false"}
    mine = [*WHOLE["kubeflow"], *(f"deploy.env.{name}={value!r}" for name, value in paths.items())]
    load("digits", mine, "kubeflow")
    # Base64 has slashes too.
    assert len(refused("kubeflow", *mine, "deploy.volumes=[]", "deploy.pod_patch=[]")) == 2


_SECRET = "/Ab12+secretsofmine/34"


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("beam.options", [f"--s3_secret_access_key={_SECRET}"]),
        ("beam.options", ["--s3_secret_access_key", _SECRET]),
        ("beam.options", [f"--s3_secret_access_key=localhost{_SECRET}"]),
        ("deploy.env.API_KEY", _SECRET),
        ("trainer.params.api_keys", ["x", _SECRET]),
    ],
)
def test_a_credential_that_looks_like_a_path_is_not_shown(key, values, tmp_path):
    place = mine = as_sections("vertex")
    *outer, last = key.split(".")
    for name in outer:
        place = place.setdefault(name, {})
    place[last] = values
    mine |= {"name": "mine", "data": {"dataset": "digits"}}
    mine["trainer"] = {"model": "mnist_cnn", "train_steps": 9, **mine.get("trainer", {})}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(mine))
    with pytest.raises(DeclarationError) as caught:
        load(tmp_path / "mine.yaml", (), "vertex")
    assert f"  {key}" in str(caught.value)
    assert "secretsofmine" not in str(caught.value)


def test_a_networks_own_tokens_are_no_credentials(tmp_path, monkeypatch):
    (tmp_path / "networks.py").write_text("def small(num_classes, **others):\n    return others\n")
    monkeypatch.chdir(tmp_path)
    params = {
        "pool_token": "mean",
        "token_vocabulary": "gs://a-bucket/vocabulary-32000.txt",
        "special_tokens": ["<pad>", "[CLS]", "end of text, as it is written"],
        "max_tokens": 512,
        "token_model": "bert-base-uncased-v2",
        "api_key_file": "/opt/keys/1234567890",
        "hf_token": "/secrets/key/hf",
    }
    mine = ("trainer.model=networks:small", f"trainer.params={json.dumps(params)}")
    load("digits", (*WHOLE["kubeflow"], *mine), "kubeflow")


def test_notes_are_shown_with_the_problems():
    two = "trainer.distribution.train=multi_worker_mirrored:2"
    with pytest.raises(DeclarationError, match=r"  note:     trainer\.distribution: 2 processes share one container"):
        load("digits", (*WHOLE["kubeflow"], two, "deploy.image=null"), "kubeflow")


@pytest.mark.parametrize("target", ["", *ALL_TARGETS])
def test_mlflow_with_a_target_has_a_note(target):
    loaded = load(
        "mnist", (*WHOLE[target], "data.data_dir=gs://mine/tfds", "tracking.mlflow=http://mlflow:5000"), target
    )
    notes = [note for note in loaded.notes if note.startswith("tracking.mlflow: ")]
    assert len(notes) == bool(target)
    assert ("no effect" in " ".join(notes)) == (target in TARGETS)


def test_an_unknown_region_of_vertex_ai_is_noted_and_accepted():
    def notes(region):
        return load("digits", (*WHOLE["vertex"], f"deploy.region={region}"), "vertex").notes

    assert not any("deploy.region" in each for each in notes("us-central1"))
    assert any("deploy.region" in each and "did you mean `europe-west4`?" in each for each in notes("europ-west-4"))
    assert any("deploy.region" in each and "did you mean" not in each for each in notes("mars"))


def test_the_regions_are_those_of_googles_own_client():
    constants = pytest.importorskip("google.cloud.aiplatform.constants.base")
    # Vertex AI has no pipelines in `global`.
    assert constants.SUPPORTED_REGIONS - {"global"} <= REGIONS


def test_an_underscore_in_a_name_is_accepted_only_without_a_target():
    assert load("mnist", ["name=my_model"]).declaration.name == "my_model"
    with pytest.raises(DeclarationError, match=r"name: my_model\n +names of jobs and pods have no underscore"):
        load("mnist", (*WHOLE["vertex"], "name=my_model"), "vertex")
