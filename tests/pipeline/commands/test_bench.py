"""`tfx-estimator bench strategies`: what it refuses at once, and what it measures."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.folders import write_files
from tests.root import run_python
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import Declaration, load
from tfx_estimator.pipeline.experiments.bench.strategies import Contender, Plan, choose, parse_contenders

# A network that one strategy cannot train.
NETWORK = """
import tensorflow as tf

from tfx_estimator.model_fn.networks import mnist_cnn


def network(num_classes):
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
        raise NotImplementedError("one replica only")
    return mnist_cnn(num_classes)
"""
RUN_FN = "def run_fn(fn_args):\n    pass\n"


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (["--strategies", "mirored:2"], ["there is no 'mirored' to measure", "did you mean `mirrored`?"]),
        (["--strategies", "tpu"], ["there is no 'tpu'", "expected: some of all, one_core, one_device, mirrored"]),
        (["--strategies", "mirrored:0"], ["mirrored:0: '0' is not a number", "from 1 to 64"]),
        (["--strategies", "one_core:2"], ["one_core: one process, without a number", "mirrored:2"]),
        (["--strategies", "one_device,mirrored:3"], ["mirrored:3: trainer.global_batch_size: 64 examples do not"]),
        (["--steps", "0"], ["--steps 0: this is out of range"]),
        (["--output", "full"], ["strategies.json exists already", "name another --output"]),
        (["--set", "trainer.train_stepz=3"], ["did you mean"]),
        (["--vary", "sed=1,2"], ["unknown key `sed`", "did you mean `seed`"]),
        (["--vary", "global_batch_size=63,65", "--strategies", "mirrored:2", "--vary", "seed=x"], ["trainer.seed"]),
        (["--set", "trainer={module_file: own.py, train_steps: 5}"], ["it defines run_fn", "trainer_fn"]),
    ],
)
def test_wrong_arguments_are_refused_at_once(tmp_path, monkeypatch, cli, arguments, texts):
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, {"own.py": RUN_FN, "full/strategies.json": "{}"})
    stderr = cli("bench", "strategies", "digits", *arguments, code=2).err
    for text in texts:
        assert text in stderr
    assert "to do:" in stderr
    # The fix names only options that were given.
    assert "--set" in arguments or "--set" not in stderr
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["full", "own.py", "strategies.json"]


def test_the_base_comes_first_and_each_strategy_once():
    names = "mirrored:4, multi_worker_mirrored,one_core,mirrored:4"
    assert [str(each) for each in parse_contenders(names)] == ["one_core", "mirrored:4", "multi_worker_mirrored:2"]
    every = ["one_core", "one_device", "mirrored:2", "central_storage:2", "multi_worker_mirrored:2"]
    assert [str(each) for each in parse_contenders("all")] == [*every, "parameter_server:2"]
    assert [str(each) for each in parse_contenders("all,mirrored:4")] == [*every, "parameter_server:2", "mirrored:4"]
    assert [str(each) for each in parse_contenders("one_device", "keras,estimator,keras")] == [
        "keras one_core",
        "keras one_device",
        "estimator one_core",
        "estimator one_device",
    ]
    with pytest.raises(DeclarationError, match="did you mean `keras`"):
        parse_contenders("one_device", "kears")


def test_a_strategy_runs_on_as_many_cores_as_it_counts():
    names = ("one_core", "one_device", "mirrored:2", "multi_worker_mirrored:3", "parameter_server:64")
    cores = [parse_contenders(name)[-1].cores((7, 3, 4, 5)) for name in names]
    assert cores == [(3,), (3, 4, 5, 7), (3, 4), (3, 4, 5), (3, 4, 5, 7)]


def test_only_the_distribution_and_the_steps_are_changed():
    trainer = {
        "model": "mnist_cnn",
        "train_steps": 1000,
        "save_checkpoints_steps": 10,
        "distribution": {
            "train": {"strategy": "multi_worker_mirrored", "workers": 3, "communication": "ring"},
            "evaluator": True,
            "network": "host",
        },
    }
    declared = Declaration.parse_obj({"name": "mine", "data": {"dataset": "mnist"}, "trainer": trainer})
    changed = {name: Contender(name, 4).declare(declared, 50) for name in ("multi_worker_mirrored", "mirrored")}
    for each in changed.values():
        assert each.trainer.train_steps == 50
        assert each.trainer.save_checkpoints_steps > 50
        distribution = each.trainer.distribution
        assert (distribution.network, distribution.evaluator, distribution.max_restarts) == ("host", False, 0)
        kept = ("distribution", "train_steps", "save_checkpoints_steps")
        same = each.trainer.copy(update={name: getattr(declared.trainer, name) for name in kept})
        assert each.copy(update={"trainer": same}) == declared
    cluster = changed["multi_worker_mirrored"].trainer.distribution.train
    assert (cluster.workers, cluster.communication) == (4, "ring")
    # `ring` is an option of workers only.
    mirrored = changed["mirrored"].trainer.distribution.train
    assert (mirrored.devices.cpu, mirrored.workers, mirrored.communication) == (4, None, "auto")
    alone = Contender("one_core").declare(declared, 50).trainer.distribution.train
    assert (alone.strategy, alone.replicas) == ("one_device", 1)


def test_strategies_alternate_and_a_constant_batch_follows_its_strategy():
    plan = Plan(parse_contenders("one_device"), steps=10, warmup=5, rounds=2, input_share=True)
    first = ["one_core", "one_core (constant batch)", "one_device", "one_device (constant batch)"]
    assert [str(run) for run in plan.runs()] == [*first, "one_core", "one_device"]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for runs, with a custom network in it."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "own_network.py").write_text(NETWORK)
    return folder


def test_gpus_are_counted_where_they_train():
    contenders = parse_contenders("all,one_core,mirrored:4,multi_worker_mirrored:3", device="gpu")
    names = [str(each) for each in contenders]
    assert (names[0], "one_core" in names, len(names)) == ("one_device", False, 7)
    assert all(each.cores((7, 3, 4)) == (3, 4, 7) for each in contenders)
    declared = load("mnist", []).declaration
    trains = {str(each): each.declare(declared, 50).trainer.distribution.train for each in contenders}
    assert {name: train.devices.gpu for name, train in trains.items()} == {
        "one_device": 1,
        "mirrored:2": 2,
        "central_storage:2": 2,
        "multi_worker_mirrored:2": 1,
        "parameter_server:2": 1,
        "mirrored:4": 4,
        "multi_worker_mirrored:3": 1,
    }
    assert all(train.devices.cpu is None for train in trains.values())
    assert trains["multi_worker_mirrored:3"].worker_count == 3


@pytest.fixture(scope="module")
def done(workdir: Path) -> subprocess.CompletedProcess:
    """Runs `tfx-estimator bench strategies digits` briefly; the network cannot be trained by `mirrored:2`."""
    options = ["--steps", "60", "--warmup", "5", "--output", "results"]
    return _bench(workdir, *options, "--strategies", "mirrored:2,parameter_server:2")


def _bench(workdir: Path, *options: str) -> subprocess.CompletedProcess:
    shared = ["--rounds", "1", "--set", "trainer.model=own_network:network"]
    shared += ["--set", "data.splits={train: 'train[:256]', eval: 'train[256:320]'}"]
    return run_python("-m", "tfx_estimator", "bench", "strategies", "digits", *options, *shared, cwd=workdir)


@pytest.mark.long
@pytest.mark.e2e
def test_strategies_are_measured_and_the_answer_is_one_line(workdir, done):
    results = workdir / "results"
    assert results.exists(), done.stdout + done.stderr
    assert sorted(path.name for path in results.iterdir()) == ["strategies.html", "strategies.json", "strategies.png"]

    found = json.loads((results / "strategies.json").read_text())
    strategies = found["strategies"]
    assert list(strategies) == ["one_core", "parameter_server:2"]
    single = {(each["strategy"], each["constant_input"]): each for each in found["measurements"]}
    assert list(single) == [(name, constant) for name in strategies for constant in (False, True)]
    real = {name: single[name, False] for name in strategies}
    cores = len(os.sched_getaffinity(0))
    assert [each["cores"] for each in strategies.values()] == [1, min(cores, 2)]
    rate = {name: each["measured_examples_per_second"] for name, each in strategies.items()}
    shown = {name: each["examples_per_second"] for name, each in strategies.items()}
    undisturbed = {key: each["undisturbed_examples_per_second"] for key, each in single.items()}
    for name, each in strategies.items():
        assert undisturbed[name, False] == pytest.approx(rate[name] / max(1 - real[name]["others"], 0.05))
        assert undisturbed[name, False] == pytest.approx(shown[name])
        assert each["speedup"] == pytest.approx(undisturbed[name, False] / undisturbed["one_core", False])
        assert each["efficiency"] == pytest.approx(each["speedup"] / each["cores"])
        assert each["input_share"] == pytest.approx(1 - undisturbed[name, False] / undisturbed[name, True])
        assert each["examples_per_step"] == 64
        # Other workers may continue during the chief's last step of the window.
        assert real[name]["steps"] >= 60
        assert rate[name] == pytest.approx(real[name]["steps"] * 64 / real[name]["wall"])
        assert each["cpu_micros_per_example"] == pytest.approx(1e6 * real[name]["cpu"] / (real[name]["steps"] * 64))
        # A process with TensorFlow takes hundreds of megabytes; PSS divides shared pages among processes.
        assert 200 << 20 < each["pss"] < each["peak_rss"] < 8 << 30
    # One core cannot spend more CPU seconds than have passed, nor can a worker that is pinned to one.
    assert real["one_core"]["steps"] == 60
    assert 0 < real["one_core"]["cpu"] <= 1.05 * real["one_core"]["wall"]
    for constant in (False, True):
        tasks = {task["task"]: task for task in single["parameter_server:2", constant]["tasks"]}
        assert sorted(tasks) == ["chief-0", "ps-0", "worker-0"]
        assert tasks["ps-0"]["steps"] == 0
        # The worker did some of the steps of the chief's window.
        assert 0 < tasks["chief-0"]["own_steps"] < tasks["chief-0"]["steps"]
        for task in (tasks["chief-0"], tasks["worker-0"]):
            assert cores < 2 or 0 < task["cpu"] <= 1.05 * task["wall"]
            assert task["constant_input"] == constant
    # Three processes take more memory than one, and more CPU time for an example.
    assert strategies["parameter_server:2"]["peak_rss"] > 2 * strategies["one_core"]["peak_rss"]
    assert strategies["parameter_server:2"]["cpu_micros_per_example"] > strategies["one_core"]["cpu_micros_per_example"]

    best = max(strategies, key=lambda name: strategies[name]["speedup"])
    assert f"Most examples/s: {best}, {shown[best]:,.0f} (" in found["answer"]
    assert found["answer"] in done.stdout.splitlines()
    assert "The shortest window lasted" in done.stdout
    assert "(one_core, and each worker of a cluster), training and input alternate on it" in done.stdout
    for name in strategies:
        assert re.search(rf"^{name} +\d+ +{shown[name]:,.0f}[ *]", done.stdout, re.MULTILINE)

    png = (results / "strategies.png").read_bytes()
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    page = (results / "strategies.html").read_text()
    assert set(re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(\w+:)", page)) == {"data:"}
    assert not re.search(r"https?://|@import|<script", page)
    assert found["answer"] in page
    assert "steps of 64 examples" in page
    assert "and this is all that the input costs" in page
    for name in strategies:
        assert f'<th scope="row">{name}</th>' in page
    # Only the logs of the trainings are kept.
    session = min((workdir / "runs" / "digits" / "bench").iterdir())
    assert sorted(path.name for path in session.iterdir()) == ["bench.log", "logs"]


@pytest.mark.long
@pytest.mark.e2e
def test_a_strategy_that_fails_does_not_hide_the_others(workdir, done):
    assert done.returncode == 5, done.stdout + done.stderr
    assert "tfx-estimator: mirrored:2: task chief-0 failed: NotImplementedError" in done.stderr
    assert "one replica only" in done.stderr
    assert "or leave mirrored:2 out" in done.stderr
    assert re.search(r"^mirrored:2 +failed", done.stdout, re.MULTILINE)
    found = json.loads((workdir / "results" / "strategies.json").read_text())
    assert "mirrored:2" not in found["strategies"]
    assert "one replica only" in found["failures"]["mirrored:2"]
    assert "<td>failed</td>" in (workdir / "results" / "strategies.html").read_text()


@pytest.mark.e2e
@pytest.mark.long
def test_each_strategy_is_measured_on_each_path(workdir, done):
    options = ["--steps", "20", "--warmup", "2", "--no-input-share", "--output", "on_paths"]
    # Each path's function is called, whatever path is declared.
    options += ["--set", "trainer.path=keras"]
    found = _bench(workdir, *options, "--strategies", "one_core", "--paths", "keras,estimator")
    assert found.returncode == 0, found.stdout + found.stderr
    results = json.loads((workdir / "on_paths" / "strategies.json").read_text())
    names = ["keras one_core", "estimator one_core"]
    assert list(results["strategies"]) == [each["strategy"] for each in results["measurements"]] == names
    # Keras's steps end with an execution, which may be several steps.
    steps = {each["strategy"]: each["steps"] for each in results["measurements"]}
    assert steps["estimator one_core"] == 20 <= steps["keras one_core"]
    rate = {each["strategy"]: each["undisturbed_examples_per_second"] for each in results["measurements"]}
    for name, each in results["strategies"].items():
        assert each["speedup"] == pytest.approx(rate[name] / rate["keras one_core"])
        assert re.search(rf"^{name} +1 ", found.stdout, re.MULTILINE)
    # Each was trained on its path.
    session = max((workdir / "runs" / "digits" / "bench").iterdir())
    jobs = [json.loads(path.read_text()) for path in sorted(session.rglob("job.json"))]
    assert sorted(job["path"] for job in jobs) == ["estimator", "keras"]


@pytest.mark.parametrize(
    "vary",
    [
        "train_steps=100,200",
        "class_weights=null,balanced",
        "path=keras,estimator",
        "distribution.train.strategy=mirrored,central_storage",
    ],
)
def test_a_variation_without_effect_is_not_measured_twice(vary):
    key = vary.partition("=")[0]
    paths = "keras" if key == "path" else ""
    choice = choose(parse_contenders("one_device", paths, [vary]), "digits", [])
    assert [each.name for each in choice.contenders] == ["one_core", "one_device"]
    assert len(choice.refused) == 2
    for reason in choice.refused.values():
        assert "trains the same as" in reason
        assert f"{key} has no effect here" in reason


@pytest.mark.parametrize(
    ("vary", "paths"),
    [("sync_every=null,4", "keras"), ("distribution.train.gradient_compression=none,fp16", "")],
)
def test_options_of_a_measured_strategy_are_varied_though_the_file_declares_another(vary, paths):
    choice = choose(parse_contenders("multi_worker_mirrored:2", paths, [vary]), "digits", [])
    named = [each for each in choice.contenders if each.name == "multi_worker_mirrored"]
    values = [next(iter(each.variation.values.values())) for each in named]
    assert len(values) == len(named) == 2
    declared = [each.declare(choice.loaded[each.variation].declaration, 10) for each in named]
    if paths:
        assert [each.trainer.sync_every and each.trainer.sync_every.steps for each in declared] == [None, 4]
        assert {each.trainer.path for each in declared} == {"keras"}
    else:
        assert [each.trainer.distribution.train.gradient_compression for each in declared] == ["none", "fp16"]
