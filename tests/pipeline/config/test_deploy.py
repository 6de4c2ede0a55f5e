"""The section `deploy`, and what `validate --target` lists: everything at once, each with what to do."""

from __future__ import annotations

import json
from importlib.machinery import EXTENSION_SUFFIXES

import pytest
import yaml

from tests.pipeline.runners.deployed import COMMON, IMAGE, OF_TARGET, OF_TFJOB, as_sections, refused
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.targets import KUBEFLOW_V2, SPEC_TARGETS, TARGETS, VERTEX
from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("target", TARGETS)
def test_a_whole_declaration_is_taken(target):
    loaded = load("digits", (*COMMON, *OF_TARGET[target]), target)
    assert loaded.declaration.deploy is not None
    assert loaded.declaration.deploy.nodes.of("Trainer").retries == 3
    assert loaded.declaration.deploy.nodes.of("Trainer").cpu == 8
    assert loaded.declaration.deploy.nodes.of("Pusher").cpu == 2


def test_without_the_section_all_that_is_needed_is_named():
    for target, wanted in (
        ("kubeflow", ["image", "pipeline_root"]),
        ("vertex", ["image", "project", "region", "pipeline_root"]),
    ):
        problems = refused(target)
        assert len(problems) == len(wanted)
        for key, problem in zip(wanted, problems):
            assert f"deploy.{key} the target {target} needs it" in problem


def test_all_that_stays_on_this_machine_is_named(tmp_path):
    start = f"trainer.warm_start={{checkpoint: {tmp_path}}}"
    local = (
        f"data.data_dir={tmp_path}",
        f"pusher.destination={tmp_path}",
        "beam={runner: portable, options: [--job_endpoint=localhost:8099]}",
        f"deploy.pipeline_root={tmp_path}",
        start,
    )
    problems = refused("kubeflow", *COMMON, *local)
    named = ("data.data_dir", "pusher.destination", "beam.options", "deploy.pipeline_root")
    for path in named:
        assert any(f"{path}: " in problem and "place of this machine" in problem for problem in problems), path
    assert any("trainer.warm_start" in problem and "from this machine only" in problem for problem in problems)


def test_what_lies_in_a_volume_is_there():
    volume = "deploy.volumes=[{claim: data, path: /mnt/data}]"
    mine = ("data.data_dir=/mnt/data/tfds", "deploy.pipeline_root=/mnt/data/runs", "pusher.destination=/mnt/data/out")
    load("mnist", (*COMMON, volume, *mine), "kubeflow")
    # A PipelineSpec's backend keeps artifacts in an object store.
    assert "deploy.pipeline_root" in refused("kubeflow_v2", *COMMON, volume, *mine, source="mnist")[0]


@pytest.mark.parametrize(
    ("override", "target", "said"),
    [
        ("deploy.image=tfx:latest", "", "not pinned by its digest"),
        ("deploy.nodes.Trainer.accelerators=2", "", "the type of accelerator is missing"),
        ("deploy.nodes.Trainer.cpu=0", "", "out of range"),
        ("deploy.nodes.Triner={cpu: 1}", "", "did you mean `Trainer`?"),
        ("deploy.imge=x", "", "did you mean `image`?"),
        ("deploy.pipeline_root=s3://bucket/x", "vertex", "Cloud Storage only"),
        ("deploy.pipeline_root=s3://bucket/x", "kubeflow_v2", "only Cloud Storage"),
        ("deploy.pipeline_root=/mnt/data/../x", "kubeflow", "place of this machine"),
        ("data.data_dir=s3://bucket/x", "vertex", "only Cloud Storage"),
        ("pusher.destination=/mnt/more/x", "kubeflow", "place of this machine"),
        ("deploy.volumes=[{claim: a, path: /x, read_only: true}]", "kubeflow_v2", "mounts every volume so that"),
        ("deploy.service_account=a@b.c", "kubeflow", "no account of the target kubeflow"),
        ("deploy.service_account=a@b.c", "kubeflow_v2", "no account of the target kubeflow_v2"),
        ("deploy.service_account=trainer", "vertex", "no account of the target vertex"),
        ("beam.options=[--temp_location=/home/me/x]", "vertex", "place of this machine"),
        ("beam.options=[--s3_secret_access_key=abc]", "vertex", "for all to read"),
        ("beam.options=[--my_api_key=abc]", "kubeflow", "for all to read"),
        ("beam.options=[--db-passwd=x]", "kubeflow_v2", "for all to read"),
        ("beam.options=[--MY_TOKEN=x]", "vertex", "for all to read"),
        ("beam.options=[--my_api_key_file=/home/me/key]", "vertex", "place of this machine"),
        ("trainer.params={wandb_api_key: abc}", "vertex", "trainer.params.wandb_api_key it would stand in"),
        ("trainer.params={wandb: {api_key: abc}}", "kubeflow", "trainer.params.wandb.api_key it would stand in"),
        ("trainer.params={api_keys: [AbC123]}", "vertex", "trainer.params.api_keys it would stand in"),
        ("trainer.params={users: [{hf_token: abc}]}", "vertex", "trainer.params.users.hf_token it would stand in"),
        ("trainer.params={token: 'Ab1234567890CdEf'}", "vertex", "trainer.params.token it would stand in"),
        ("deploy.volumes=[{claim: a, path: /x}]", "vertex", "Vertex AI has none"),
        ("deploy.nodes.default.timeout_seconds=9", "vertex", "no deadline of a step"),
        ("deploy.nodes.Trainer.accelerator=nvidia.com/gpu", "vertex", "no accelerator of the target vertex"),
        ("deploy.nodes.Trainer.accelerator=NVIDIA_TESLA_T4", "kubeflow", "no accelerator of the target kubeflow"),
    ],
)
def test_what_cannot_be(override, target, said):
    whole = (*COMMON, *OF_TARGET[target]) if target else ()
    assert any(said in problem for problem in refused(target, *whole, override))


@pytest.mark.parametrize(
    ("name", "noted"),
    [
        ("europe-west4-docker.pkg.dev/my-project/images/tfx-estimator", ""),
        ("eu.gcr.io/my-project/tfx-estimator:1.2", ""),
        ("someone/tfx__estimator", ""),
        ("docker.io/someone/tfx-estimator", ""),
        ("registry.example:5000/tfx-estimator", "deploy.image is at registry.example: Vertex AI is documented"),
        ("localhost/tfx-estimator", "deploy.image is at localhost"),
        # A host may have capitals, and be an address.
        ("Registry.Example/a/b", "deploy.image is at Registry.Example"),
        ("[::1]:5000/tfx-estimator", "deploy.image is at [::1]:"),
    ],
)
def test_where_vertex_ai_pulls_no_image_is_noted(name, noted):
    pinned = f"deploy.image='{name}@{IMAGE.partition('@')[2]}'"
    for target, there in (("vertex", bool(noted)), ("kubeflow", False)):
        notes = load("digits", (*COMMON, *OF_TARGET[target], pinned), target).notes
        assert any(note.startswith(noted or "deploy.image is") for note in notes) == there


FLINK = "runner: portable, job_endpoint: flink-jobs:8099, environment_type: EXTERNAL, environment_config: localhost:5"
DATAFLOW = "project: mine-12, region: europe-west4, temp_location: gs://mine/tmp, sdk_container_image: mine/image"
VOLUME = "deploy.volumes=[{claim: data, path: /mnt/data}]"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("beam", [FLINK, f"runner: dataflow, dataflow: {{{DATAFLOW}}}"])
def test_any_engine_that_the_steps_reach_is_taken(beam, target):
    load("mnist", (*COMMON, *OF_TARGET[target], f"beam={{{beam}}}", "data.data_dir=gs://mine/tfds"), target)


@pytest.mark.parametrize(
    ("beam", "target", "paths"),
    [
        (
            "runner: portable, job_endpoint: localhost:8099, artifact_endpoint: 127.0.0.1:8098, "
            "environment_type: LOOPBACK",
            "vertex",
            ["beam.job_endpoint", "beam.artifact_endpoint", "beam.environment_type"],
        ),
        ("runner: dataflow", "vertex", ["beam.runner"]),
        (
            "runner: dataflow, dataflow: {temp_location: /tmp/x}",
            "vertex",
            [f"beam.dataflow.{key}" for key in ("project", "region", "temp_location", "sdk_container_image")],
        ),
        (f"runner: dataflow, dataflow: {{{DATAFLOW}}}", "kubeflow", ["data.data_dir", "deploy.pipeline_root"]),
    ],
)
def test_whatever_an_engine_of_beam_lacks_there_is_named_once(beam, target, paths):
    places = ("deploy.pipeline_root=/mnt/data/runs", "data.data_dir=/mnt/data/tfds")
    mine = (VOLUME, *places) if target == "kubeflow" else ("data.data_dir=gs://mine/tfds",)
    problems = refused(target, *COMMON, *OF_TARGET[target], *mine, f"beam={{{beam}}}", source="mnist")
    assert [path for path in paths if not any(f" {path}" in problem for problem in problems)] == []
    assert len(problems) == len(paths)


def test_data_that_the_compiling_machine_does_not_see_are_told(tmp_path):
    def of_data(*told) -> list[str]:
        return [note for note in load(*told).notes if note.startswith("data.data_dir: ")]

    for target in ("kubeflow", "kubeflow_v2"):
        mine = (*COMMON, *OF_TARGET[target])
        volume = f"deploy.volumes=[{{claim: data, path: /mnt/data}}, {{claim: here, path: {tmp_path}}}]"
        elsewhere, here = (*mine, volume, "data.data_dir=/mnt/data/tfds"), (*mine, volume, f"data.data_dir={tmp_path}")
        (note,) = of_data("mnist", elsewhere, target)
        assert note.startswith("data.data_dir: /mnt/data/tfds is not on this machine, so that the fingerprint")
        assert of_data("mnist", here, target) == of_data("digits", elsewhere, target) == []
    assert of_data("mnist", (*COMMON, *OF_TARGET["vertex"], "data.data_dir=gs://mine/tfds"), "vertex") == []


@pytest.mark.parametrize("target", SPEC_TARGETS)
def test_data_that_nobody_may_fetch_are_missed(target):
    problems = refused(target, *COMMON, *OF_TARGET[target], "data.download=false", source="mnist")
    assert [problem for problem in problems if "data.data_dir" in problem and "empty" in problem]


def test_all_that_cannot_travel_is_listed_with_the_rest(tmp_path):
    for name, text in {
        "sched.py": "def small(num_classes):\n    import fast, faster\n",
        f"fast{EXTENSION_SUFFIXES[0]}": "",
        f"faster{EXTENSION_SUFFIXES[0]}": "",
        "a/prepare.py": "import helpers\n\ndef preprocessing_fn(inputs):\n    return inputs\n",
        "a/helpers.py": "",
        "helpers.py": "",
        "networks.py": "import helpers\n\ndef small(num_classes):\n    return 1\n",
        "huge.py": f"TEXT = '{'x' * 900_000}'\n\ndef small(num_classes):\n    return 1\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    source = tmp_path / "mine.yaml"
    source.write_text(
        "name: mine\ndata: {dataset: digits, splits: {train: 'train[:80%]', eval: 'train[80%:]'}}\n"
        "trainer: {model: 'sched:small', train_steps: 9}\n"
    )
    load(source)
    for target in (*TARGETS, "tfjob"):
        with pytest.raises(DeclarationError) as caught:
            load(source, (), target)
        said = str(caught.value)
        for each in ("sched.py, has the name of one of Python's own", "fast is compiled", "faster is compiled"):
            assert said.count(each) == 1
        assert "deploy.image" in said
    whole = (*OF_TFJOB[:4], f"transform.module_file={tmp_path / 'a/prepare.py'}", "trainer.model=networks:small")
    with pytest.raises(DeclarationError, match="two modules are called helpers"):
        load(source, whole, "tfjob")
    # Each step of a service imports its own.
    with pytest.raises(DeclarationError) as caught:
        load(source, whole[4:], "vertex")
    assert "helpers" not in str(caught.value)
    with pytest.raises(DeclarationError, match="too many to travel in a ConfigMap"):
        load(source, (*OF_TFJOB[:4], "trainer.model=huge:small"), "tfjob")


def test_a_training_in_a_tfjob_takes_no_module_that_cannot_travel(tmp_path):
    (tmp_path / "sched.py").write_text("def small(num_classes):\n    return 1\n")
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ndata: {dataset: digits}\ntrainer: {model: 'sched:small', train_steps: 9}\n"
    )
    with pytest.raises(DeclarationError, match="has the name of one of Python's own"):
        load(tmp_path / "mine.yaml", (*OF_TFJOB[:4], "deploy.tfjob.train=true"))


_LONE = "trainer.distribution={train: {strategy: multi_worker_mirrored, workers: 1}, evaluator: true}"
_TRAINS = (*OF_TFJOB[:4], "deploy.tfjob.train=true")


@pytest.mark.parametrize(
    ("target", "more", "path", "said"),
    [
        ("kubeflow", ("deploy.pipeline_root=gs://a-bucket/pipelines",), "deploy.pipeline_root", "share the training's"),
        ("kubeflow", ("deploy.pipeline_root=/srv/runs",), "deploy.pipeline_root", "a place of this machine"),
        ("kubeflow", ("deploy.tfjob.context=there",), "deploy.tfjob.context", "has no kubeconfig"),
        ("kubeflow", (_LONE,), "trainer.distribution.evaluator", "not seen by it"),
        ("kubeflow_v2", ("deploy.pipeline_root=gs://a-bucket/pipelines",), "deploy.tfjob.train", "lie in a bucket"),
        (
            "vertex",
            (
                *("deploy.pipeline_root=gs://a-bucket/pipelines", "deploy.volumes=[]", "deploy.project=a-project"),
                *("deploy.region=europe-west4", "deploy.service_account=null"),
            ),
            "deploy.tfjob.train",
            "trains in a step of the target vertex",
        ),
    ],
)
def test_a_step_that_cannot_train_in_a_tfjob_is_refused(target, more, path, said):
    problems = [problem for problem in refused(target, *_TRAINS, *more) if said in problem]
    assert len(problems) == 1
    assert path in problems[0]


def test_a_step_without_a_volume_cannot_train_in_a_tfjob():
    problems = refused("kubeflow", *_TRAINS, "deploy.volumes=[]")
    assert [problem for problem in problems if "no volume has it" in problem]


def test_a_step_that_trains_in_a_tfjob_tells_what_its_account_needs():
    assert [note for note in load("digits", _TRAINS, "kubeflow").notes if "the Role in docs/kubeflow.md" in note]
    assert not [note for note in load("digits", OF_TFJOB[:4], "kubeflow").notes if "Role" in note]


_T4, _GPU = "accelerator: NVIDIA_TESLA_T4", "accelerator: nvidia.com/gpu"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("AWS_SECRET_ACCESS_KEY", "for all to read"),
        ("GITHUB_TOKEN", "for all to read"),
        ("PGPASSWORD", "for all to read"),
        ("wandb_api_key", "for all to read"),
    ],
)
def test_no_credentials_are_taken(name, said):
    (problem,) = refused("", f"deploy.env.{name}=quite-private")
    assert "quite-private" not in problem.partition(f" deploy.env.{name} ")[2]
    assert said in problem


def test_a_variable_may_lead_to_a_secrets_file():
    paths = {
        "GITHUB_TOKEN_FILE": "secrets/x",
        "AWS_SECRET": "/secrets/key/aws",
        "TOKEN": "/mnt/data/token",
        "MY_SECRETS_DIR": "/opt/x",
        "TOKENIZERS_PARALLELISM": "false",
    }
    mine = [f"deploy.env.{name}={value!r}" for name, value in paths.items()]
    mounts = (VOLUME, "deploy.secrets=[{name: key, path: /secrets/key}]")
    load("digits", [*mine, *mounts])
    # Base64 has the character as well.
    assert len(refused("", *mine)) == 2


_SECRET = "/Ab12+secretsofmine/34"


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("beam.options", [f"--s3_secret_access_key={_SECRET}"]),
        ("beam.options", ["--s3_secret_access_key", _SECRET]),
        ("beam.options", [f"--s3_secret_access_key {_SECRET}"]),
        ("beam.options", [f"s3_secret_access_key={_SECRET}"]),
        ("beam.options", f"--s3_secret_access_key={_SECRET}"),
        ("beam.options", [f"--s3_secret_access_key=localhost{_SECRET}"]),
        ("beam.options", [f"--s3_secret_access_key={_SECRET}", "--mine={{x}}"]),
        ("beam.options", [f"--s3_secret_key_file={_SECRET}"]),
        ("deploy.env.API_KEY", _SECRET),
        ("trainer.params.api_key", _SECRET),
        ("trainer.params.api_keys", ["x", _SECRET]),
    ],
)
def test_nobody_is_shown_a_credential_that_looks_like_a_path(key, values, tmp_path):
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
        "token_type": "word",
        "token_model": "sentencepiece_unigram",
        "token_vocabulary": "gs://a-bucket/vocabulary-32000.txt",
        "special_tokens": ["<pad>", "[CLS]", "end of text, as it is written"],
        "max_tokens": 512,
        "api_key_file": "/opt/keys/1234567890",
        "hf_token": "/secrets/key/hf",
    }
    mine = ("trainer.model=networks:small", f"trainer.params={json.dumps(params)}")
    load("digits", (*COMMON, *OF_TARGET["kubeflow"], *mine), "kubeflow")


@pytest.mark.parametrize(
    ("target", "name", "value"),
    [
        ("vertex", "GOOGLE_APPLICATION_CREDENTIALS", "/home/me/key.json"),
        ("vertex", "GOOGLE_APPLICATION_CREDENTIALS", "/secrets/key/key.json"),
        ("kubeflow", "GOOGLE_APPLICATION_CREDENTIALS", "/opt/key.json"),
        ("tfjob", "GOOGLE_APPLICATION_CREDENTIALS", "key.json"),
    ],
)
def test_a_key_file_that_the_steps_do_not_have_is_refused(target, name, value):
    whole = OF_TFJOB if target == "tfjob" else (*COMMON, *OF_TARGET[target])
    (problem,) = refused(target, *whole, f"deploy.env.{name}={value!r}")
    assert f"deploy.env.{name} " in problem
    assert any(said in problem for said in ("mounts no key's file", "nothing that is mounted"))
    # Nothing is refused that is to run here.
    load("digits", (*whole, f"deploy.env.{name}={value!r}"))


@pytest.mark.parametrize(
    ("target", "said"),
    [("vertex", "compute@"), ("kubeflow", "runner"), ("kubeflow_v2", "runner"), ("tfjob", "default,")],
)
def test_a_missing_account_and_the_quota_are_told_beside_the_problems(target, said):
    whole = OF_TFJOB if target == "tfjob" else (*COMMON, *OF_TARGET[target])
    assert not [note for note in load("digits", whole, target).notes if "service_account" in note]
    mine = (*whole, "deploy.service_account=null")
    (note,) = [note for note in load("digits", mine, target).notes if "service_account" in note]
    assert said in note
    with pytest.raises(DeclarationError) as caught:
        load("digits", (*mine, "deploy.image=null"), target)
    told = [line for line in str(caught.value).splitlines() if line.startswith("  note:     ")]
    assert f"  note:     {note}" in told
    assert any("quota: a machine with 2 NVIDIA_TESLA_T4" in line for line in told) == (target == "vertex")
    assert not [note for note in load("digits", mine).notes if "service_account" in note]


@pytest.mark.parametrize(
    ("override", "target", "said"),
    [
        ("deploy.nodes.Trainer.cpu=0.0001", "kubeflow", "out of range"),
        ("deploy.nodes.default.memory_gb=0.0001", "kubeflow", "out of range"),
        ("deploy.tfjob.replicas.chief.cpu=0.0001", "", "out of range"),
        ("deploy.tfjob.replicas.chief.memory_gb=0.0004", "", "out of range"),
    ],
)
def test_what_would_break_where_it_is_deployed_only(override, target, said):
    whole = (*COMMON, *OF_TARGET[target]) if target else ()
    assert any(said in problem for problem in refused(target, *whole, override))


def _notes(*overrides: str, target: str = VERTEX) -> str:
    return "\n".join(load("digits", (*COMMON, *OF_TARGET[target], *overrides), target).notes)


def test_whom_the_replicas_of_a_custom_job_run_as_is_said():
    account = "someone@some-project.iam.gserviceaccount.com"
    agent = "service-NUMBER@gcp-sa-aiplatform-cc.iam.gserviceaccount.com"
    named = _notes("deploy.vertex={}", f"deploy.service_account={account}")
    assert f"{account} creates, gets, lists and cancels custom jobs: it needs roles/aiplatform.user" in named
    assert f"roles/iam.serviceAccountUser on {account}, itself" in named
    assert agent not in named
    without = _notes("deploy.vertex={}", "deploy.service_account=null")
    assert "the steps run as the project's default, NUMBER-compute@developer" in without
    assert f"Custom Code Service Agent, {agent}, and not as the steps do" in without
    # In the step itself there is one account.
    assert agent not in _notes("deploy.service_account=null")


@pytest.mark.parametrize("target", [VERTEX, KUBEFLOW_V2])
def test_what_the_account_of_steps_that_start_dataflow_needs_is_said(target):
    flow = (f"beam={{runner: dataflow, dataflow: {{{DATAFLOW}}}}}", "data.data_dir=gs://some-bucket/tfds")
    assert "dataflow" not in _notes(target=target)
    said = _notes(*flow, target=target)
    assert "roles/dataflow.developer in" in said
    assert "roles/iam.serviceAccountUser on the workers' account, NUMBER-compute@" in said
    assert ("leaves its Dataflow job at work" in said) == (target == KUBEFLOW_V2)
    worker = "beam.dataflow.service_account_email=worker@some-project.iam.gserviceaccount.com"
    assert "on the workers' account, worker@some-project.iam.gserviceaccount.com" in _notes(
        *flow, worker, target=target
    )
