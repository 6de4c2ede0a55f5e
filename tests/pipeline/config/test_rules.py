"""Rules of the section `trainer`: refused declarations with place and reason, and accepted ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.yaml_text import inline

OWN = """
def net(num_classes, units=3): pass
def any(num_classes, **options): pass
def whole(features, labels, mode, params): pass
"""
MODULES = {
    "own.py": OWN,
    "trains.py": "def trainer_fn(fn_args, schema): ...\n",
    "runs.py": "def run_fn(fn_args): ...\n",
    "both.py": "def run_fn(fn_args): ...\ndef trainer_fn(fn_args, schema): ...\n",
    "star.py": "from elsewhere import *\ndef trainer_fn(fn_args, schema): ...\n",
    "makes.py": "import tensorflow as tf\n"
    'def make(fn_args, schema): return {"estimator": tf.estimator.Estimator(1), "train_spec": 2, "eval_spec": 3}\n'
    "def run_fn(fn_args): tf.estimator.train_and_evaluate(**make(fn_args, None))\n",
    "line.py": "from makes import make as trainer_fn\n",
}


@pytest.fixture
def declare(write: Callable[..., Path]) -> Callable[[str], str]:
    """Returns a declaration's text with the given YAML as `trainer`; writes the modules next to it."""

    def text(given: str) -> str:
        for name, module in MODULES.items():
            write(module, name)
        trainer: dict[str, Any] = {"model": "mnist_cnn", "train_steps": 500, **yaml.safe_load(f"{{{given}}}")}
        if trainer.get("module_file"):
            trainer.pop("model")
        rest = {key: trainer.pop(key) for key in ("transform", "evaluator", "beam") if key in trainer}
        whole = {"name": "mine", "data": {"dataset": "mnist"}, "trainer": trainer, **rest}
        return yaml.safe_dump(whole, sort_keys=False)

    return text


def distribution(train: str, more: str = "") -> str:
    return f"distribution: {{train: {{{train}}}{more}}}"


WORKERS = distribution("strategy: multi_worker_mirrored, workers: 2")
SERVERS = distribution("strategy: parameter_server, workers: 2")
CUT = "path: keras, " + distribution("strategy: parameter_server, variable_partitioner: {%s}")
TPU = distribution("strategy: tpu, tpu: local")
EVALUATOR = distribution("strategy: multi_worker_mirrored", ", evaluator: true")
LAYERS = "model_parallel: {devices: [%s], layers: {%s}}"
TWO = LAYERS % ('"cpu:0", "cpu:1"', "dense1: 1")
STAGES = "pipeline_parallel: {stages: 2, microbatches: 4}"
GROUP = "strategy: multi_worker_mirrored"
COMPRESSED = distribution(f"{GROUP}, gradient_compression: bf16")
AVERAGED = f"path: keras, sync_every: 4, {WORKERS}"
EVALUATES = ", eval: {devices: {gpu: [2]}}, evaluator: true"
PIECES = "schedule: piecewise, boundaries: [5], values: [1, 2]"
SYNCHRONIZED = "model: cifar_resnet9, params: {synchronized: true}, xla: true"
_TRAIN = "trainer.distribution.train"
# (declared in `trainer`, place of the one problem, part of its message)
REFUSED = [
    # Code
    ("module_file: runs.py, path: keras", "trainer.path: keras", "trains by its own code"),
    ("model: 'own:whole', path: keras", "trainer.path: keras", "whole Estimator model_fn"),
    ("model: 'own:net', params: {unit: 5}", "trainer.params.unit", "did you mean `units`?"),
    ("augment: [{random_flip: {}, cutout: {}}]", "trainer.augment.0", "random_flip and cutout"),
    ("module_file: trains.py, augment: [random_flip]", "trainer.augment", "reads its own examples"),
    ("module_file: trains.py, tensorboard: {histograms: true}", "trainer.tensorboard", "makes its own model"),
    # Course
    ("keep_best: acuracy", "trainer.keep_best.metric: acuracy", "did you mean `accuracy`?"),
    ("model: 'own:net', keep_best: happiness", "trainer.keep_best.metric", "set trainer.keep_best.mode"),
    (f"keep_best: loss, {WORKERS}", "trainer.keep_best", "processes of multi_worker_mirrored only train"),
    ("profile: {start_step: 500}", "trainer.profile.start_step: 500", "ends before the profile begins"),
    (f"threads: {{inter_op: 2}}, {SERVERS}", "trainer.threads.inter_op: 2", "would deadlock"),
    # A run_fn
    ("module_file: runs.py, keep_best: loss", "trainer.keep_best", "a run_fn evaluates and saves"),
    ("module_file: runs.py, early_stopping: loss", "trainer.early_stopping", "a run_fn evaluates and stops"),
    ("module_file: runs.py, profile: {}", "trainer.profile", "runs its own steps"),
    (f"module_file: runs.py, {TPU}", f"{_TRAIN}.strategy: tpu", "connects to its TPU"),
    (f"module_file: runs.py, {EVALUATOR}", "trainer.distribution.evaluator: true", "would do nothing"),
    ("module_file: both.py, distribution: {eval: {strategy: mirrored}}", "distribution.eval.strategy", "by itself"),
    (f"module_file: makes.py, {SERVERS}", f"{_TRAIN}.strategy", "into a `def trainer_fn(fn_args, schema)`"),
    (f"module_file: makes.py, {WORKERS}", f"{_TRAIN}.strategy", "(makes.py:3: tf.estimator.train_and_evaluate)"),
    ("module_file: makes.py, distribution: {train: mirrored:2}", f"{_TRAIN}.strategy", "silently train on one device"),
    # Optimizer
    ("optimizer: {warmup_steps: 500}", "trainer.optimizer.warmup_steps: 500", "warm-up does not end"),
    ("optimizer: {schedule: one_cycle, warmup_steps: 5}", "optimizer.warmup_steps: 5", "has its own warm-up"),
    ("optimizer: {name: adam, momentum: 0.5}", "optimizer.momentum: 0.5", "to momentum or sgd or rmsprop"),
    ("optimizer: {schedule: exponential, decay_rate: 0.5}", "optimizer.decay_steps", "`exponential` needs it"),
    ("optimizer: {schedule: piecewise, boundaries: [9, 5], values: [1, 2, 3]}", "boundaries: [9, 5]", "not increasing"),
    ("optimizer: {schedule: piecewise, boundaries: [5, 9], values: [1, 2]}", "optimizer.values: [1.0, 2.0]", "3 rates"),
    (f"optimizer: {{{PIECES}, learning_rate: 1}}", "optimizer.learning_rate: 1", "has its rates in values"),
    ("optimizer: {clip_norm: 1, clip_value: 1}", "optimizer.clip_value: 1", "clip_norm is given as well"),
    (f"optimizer: {{scaling: linear}}, {SERVERS}", "optimizer.scaling: linear", "the replicas of parameter_server"),
    (f"optimizer: {{scaling: sqrt}}, {AVERAGED}", "optimizer.scaling: sqrt", "averages over"),
    # Parts of a batch
    (f"gradient_accumulation: 17, global_batch_size: 32, {WORKERS}", "trainer.gradient_accumulation: 17", "at most 16"),
    ("model: 'own:whole', gradient_accumulation: 2", "trainer.gradient_accumulation: 2", "whole Estimator model_fn"),
    (f"parallel_parts: 17, global_batch_size: 32, {WORKERS}", "trainer.parallel_parts: 17", "16 of the 32 examples"),
    ("parallel_parts: 7, gradient_accumulation: 5, global_batch_size: 32", "parallel_parts: 7", "fewer than 35 parts"),
    ("parallel_parts: 2, xla: true", "trainer.parallel_parts: 2", "compiles a step into one program"),
    (f"parallel_parts: 2, {STAGES}", "trainer.parallel_parts: 2", "there is trainer.pipeline_parallel as well"),
    ("model: cifar_resnet, parallel_parts: 2", "trainer.parallel_parts: 2", "by batch statistics"),
    # Precision, XLA, averaged weights
    ("model: 'own:whole', precision: mixed_bfloat16", "trainer.precision", "whole Estimator model_fn"),
    (f"precision: mixed_float16, {AVERAGED}", "trainer.precision: mixed_float16", "change the scale"),
    (f"precision: mixed_bfloat16, {CUT % 'fixed_shards: 2'}", "trainer.precision", "a sharded variable"),
    ("model: 'own:whole', xla: true", "trainer.xla: true", "has a training step of its own"),
    (f"xla: true, {SERVERS}", "trainer.xla: true", "weights are in other processes"),
    (f"xla: true, {distribution('strategy: central_storage')}", "trainer.xla: true", "weights are on one device"),
    (f"{SYNCHRONIZED}, distribution: {{train: mirrored:2}}", "trainer.xla: true", "by the global batch"),
    (f"xla: true, {STAGES}", "trainer.xla: true", "XLA compiles for one device"),
    (f"sync_every: 4, {WORKERS}", "trainer.sync_every", "session would save"),
    ("path: keras, sync_every: 4", "trainer.sync_every", "the strategy one_device has none"),
    ("module_file: trains.py, sync_every: 4", "trainer.sync_every", "average the weights in your own loop"),
    (f"path: keras, sync_every: 4, {COMPRESSED}", f"{_TRAIN}.gradient_compression: bf16", "exchange weights"),
    # Layers and stages on devices
    (LAYERS % ('"cpu:0"', "a: 0"), ".model_parallel.devices", "only one device"),
    (LAYERS % ('"cpu:0", "cpu:0"', "a: 0"), ".model_parallel.devices", "cpu:0 is listed more than once"),
    (LAYERS % ('"cpu:0", "cpu:1"', "a: 2"), ".model_parallel.layers.a: 2", "there are 2 devices"),
    (f"{TWO}, {STAGES}", "trainer.model_parallel", "layers of each stage"),
    (f"{TWO}, distribution: {{train: mirrored:2}}", "trainer.model_parallel", "each replica of mirrored"),
    (f"{STAGES}, distribution: {{eval: mirrored:2}}", "trainer.pipeline_parallel", "each replica of mirrored"),
    (f"module_file: trains.py, {STAGES}", "trainer.pipeline_parallel", "builds its network itself"),
    (f"model: cifar_resnet9, {STAGES}", "trainer.pipeline_parallel", "by batch statistics"),
    (f"gradient_accumulation: 2, {STAGES}", "trainer.gradient_accumulation: 2", "are its microbatches"),
    ("pipeline_parallel: {stages: 2, microbatches: 129}", ".microbatches: 129", "128 examples"),
    ("pipeline_parallel: {stages: [[a], []], microbatches: 2}", ".stages", "each with a layer"),
    ("pipeline_parallel: {stages: 3, microbatches: 2, devices: ['cpu:0', 'cpu:1']}", ".devices", "2 for 3 stages"),
    # Strategies
    (distribution("strategy: mirrored, cross_device_ops: auto"), f"{_TRAIN}.cross_device_ops: auto", "unknown value"),
    (distribution("strategy: mirrored, devices: {cpu: 2, gpu: 2}"), f"{_TRAIN}.devices", f"--set {_TRAIN}.devices.cpu"),
    (distribution("strategy: parameter_server, devices: {cpu: [1]}"), f"{_TRAIN}.devices", "uses one CPU device"),
    (distribution("strategy: tpu"), f"{_TRAIN}.tpu", "which TPU"),
    (distribution("strategy: tpu, tpu: my-tpu, devices: {gpu: 3}"), f"{_TRAIN}.devices", "TPU's own cores"),
    (
        "distribution: {eval: {strategy: tpu}}",
        "trainer.distribution.eval.strategy: tpu",
        "choose one of: one_device, mirrored",
    ),
    (distribution("strategy: mirrored", ", evaluator: true"), "trainer.distribution.evaluator: true", "one process"),
    # The consequences of an unknown strategy are left out.
    (distribution("strategy: miror, workers: 3, devices: {cpu: 3}"), f"{_TRAIN}.strategy: miror", "`mirrored`?"),
    (f"deterministic: true, {SERVERS}", "trainer.deterministic: true", "no two runs are bitwise equal"),
    (f"model: 'own:whole', {COMPRESSED}", f"{_TRAIN}.gradient_compression: bf16", "built-in training step"),
    # Parameter servers
    ("path: keras, " + distribution("strategy: parameter_server, workers: 1"), f"{_TRAIN}.workers: 1", "be no worker"),
    (f"path: keras, {SERVERS[:-1]}, sharding: file}}", "trainer.distribution.sharding: file", "run the same input"),
    ((CUT % "min_bytes: 9").replace("keras", "estimator"), f"{_TRAIN}.variable_partitioner", "hold whole variables"),
    (CUT % "", f"{_TRAIN}.variable_partitioner", "none of its sizes"),
    (CUT % "min_bytes: 9, fixed_shards: 2", f"{_TRAIN}.variable_partitioner", "min_bytes and fixed_shards"),
    (f"optimizer: {{name: adafactor}}, {CUT % 'min_bytes: 9'}", "trainer.optimizer.name: adafactor", "means of a"),
]


@pytest.mark.parametrize(("given", "place", "text"), REFUSED)
def test_a_wrong_trainer_section_is_refused(declare, problems, given, place, text):
    (problem,) = problems(declare(given))
    assert place in problem.splitlines()[0]
    assert text in problem


ACCEPTED = [
    "model: 'own:whole', params: {a: 1}, evaluator: {prediction_key: scores}",
    "model: 'own:any', params: {a: 1}, path: keras_custom_loop, evaluator: {prediction_key: probabilities}",
    "module_file: trains.py, keep_best: loss, early_stopping: loss",
    f"{EVALUATOR}, model: 'own:net', keep_best: {{metric: happiness, mode: max}}",
    "module_file: runs.py, " + distribution("strategy: mirrored, devices: {cpu: 2}"),
    f"module_file: runs.py, {WORKERS}",
    f"module_file: line.py, {WORKERS}",
    "module_file: star.py, " + distribution("strategy: mirrored"),
    "module_file: makes.py, distribution: {max_restarts: 1}",
    f"gradient_accumulation: 16, global_batch_size: 32, {WORKERS}",
    f"parallel_parts: 16, global_batch_size: 32, {WORKERS}",
    "model: cifar_resnet, parallel_parts: auto, xla: true, deterministic: true",
    f"precision: mixed_bfloat16, path: keras, sync_every: 2, {WORKERS}",
    f"precision: mixed_bfloat16, {SERVERS}",
    CUT % "min_bytes: 4096",
    "model: cifar_resnet9, params: {synchronized: true}, xla: true",
    "model: cifar_resnet9, params: {synchronized: false}, xla: true, distribution: {train: mirrored:2}",
    distribution("strategy: mirrored, cross_device_ops: hierarchical_copy, num_packs: 0"),
    distribution("strategy: mirrored, devices: {gpu: [1, 3]}, cross_device_ops: nccl"),
    distribution("devices: {gpu: [63]}", ", eval: {devices: {cpu: [1]}}"),
    distribution("strategy: central_storage, devices: {cpu: 2}", ", eval: {strategy: central_storage}"),
    distribution("strategy: multi_worker_mirrored, workers: 1, devices: {gpu: [1, 3]}"),
    distribution("strategy: multi_worker_mirrored, workers: 8", ", sharding: file"),
    distribution("strategy: multi_worker_mirrored, communication: nccl, devices: {gpu: 4}, timeout_seconds: 0.5"),
    f"{EVALUATOR[:-1]}, start_delay_secs: 5, throttle_secs: 30}}",
    # A worker of parameter servers takes a whole batch: 128 need not divide by 3.
    distribution("strategy: parameter_server, workers: 3, ps: 2, devices: {cpu: [0]}", ", eval: {devices: {gpu: [1]}}"),
    distribution("strategy: parameter_server, workers: 1", ", sharding: file"),
    distribution("strategy: tpu, tpu: 'grpc://10.0.0.2:8470'", ", eval: {strategy: mirrored}"),
]


@pytest.mark.parametrize("given", ACCEPTED)
def test_a_right_trainer_section_is_accepted(declare, write, given):
    assert load(write(declare(given))).declaration


# An option, a value of it, and the strategies that take it.
OPTIONS = [
    ("cross_device_ops", "hierarchical_copy", ["mirrored"]),
    ("num_packs", "2", ["mirrored"]),
    ("workers", "4", ["multi_worker_mirrored", "parameter_server"]),
    ("ps", "2", ["parameter_server"]),
    ("communication", "ring", ["multi_worker_mirrored"]),
    ("bytes_per_pack", "1024", ["multi_worker_mirrored"]),
    ("gradient_compression", "bf16", ["mirrored", "multi_worker_mirrored"]),
    ("timeout_seconds", "5.0", ["multi_worker_mirrored"]),
    ("tpu", "my-tpu", ["tpu"]),
]
STRATEGIES = ["one_device", "mirrored", "central_storage", "multi_worker_mirrored", "parameter_server", "tpu"]


@pytest.mark.parametrize(
    ("strategy", "key", "value", "owners"),
    [(each, *option) for option in OPTIONS for each in STRATEGIES if each not in option[2]],
)
def test_an_option_of_another_strategy(problems, declare, strategy, key, value, owners):
    named = ", tpu: my-tpu" if strategy == "tpu" else ""
    (problem,) = problems(declare(distribution(f"strategy: {strategy}, {key}: {value}{named}")))
    assert f"{_TRAIN}.{key}: {value}\nthe strategy {strategy} takes no {key}\n" in problem
    assert f"set {_TRAIN}.strategy to {' or '.join(owners)}" in problem


def test_every_strategy_accepts_the_defaults(write, good):
    # `show` writes every value, and what it writes can be run.
    defaults = load(write(good)).declaration.trainer.distribution.dict()
    for strategy in STRATEGIES:
        defaults["train"].update(strategy=strategy, tpu="my-tpu" if strategy == "tpu" else None)
        write(f"{good}  distribution: {inline(defaults)}\n")
        assert load("mine.yaml").declaration.trainer.distribution.dict() == defaults


def test_several_mistakes_are_reported_at_once_without_their_consequences(problems, declare):
    text = declare(distribution("workers: 2, devices: {cpu: 3}", ", evaluator: true, network: privat"))
    found = [problem.splitlines()[0].partition("trainer.distribution.")[2] for problem in problems(text)]
    # Not reported: 128 examples do not divide among 3 devices.
    assert sorted(found) == ["evaluator: true", "network: privat", "train.devices", "train.workers: 2"]


@pytest.mark.parametrize("path", ["estimator", "keras", "keras_custom_loop"])
@pytest.mark.parametrize(
    ("given", "deciding"),
    [
        ("gradient_accumulation: 4", True),
        ("precision: mixed_float16", True),
        ("xla: true", True),
        ("parallel_parts: auto", False),
        ("parallel_parts: 4", False),
        (TWO, False),
    ],
)
def test_options_of_every_path_decide_the_model_or_not(write, declare, path, given, deciding):
    trainer = load(write(declare(f"path: {path}, {given}"))).declaration.trainer
    key = given.partition(":")[0]
    assert (key in trainer.split()[0], key in trainer.split()[1]) == (deciding, not deciding)
    assert not trainer.undivided.is_divided


@pytest.mark.parametrize(
    ("declared", "count", "cpus", "ideal"),
    [
        ("{stages: 2, microbatches: 4}", 2, 2, 1 / 5),
        ("{stages: [[conv1, flatten], [dense1], [logits]], microbatches: 1}", 3, 3, 2 / 3),
        ('{stages: 2, microbatches: 8, devices: ["gpu:0", "gpu:1"]}', 2, 0, 1 / 9),
        ('{stages: 2, microbatches: 8, devices: ["cpu:3", "gpu:1"]}', 2, 4, 1 / 9),
    ],
)
def test_stages_are_a_number_or_lists_of_layers(write, declare, declared, count, cpus, ideal):
    trainer = load(write(declare(f"pipeline_parallel: {declared}"))).declaration.trainer
    section = trainer.pipeline_parallel
    assert (section.stage_count, trainer.logical_cpus, section.ideal_bubble) == (count, cpus, pytest.approx(ideal))
    # Microbatches change the sum of the gradients; devices do not.
    deciding, operational = trainer.split()
    assert "devices" not in deciding["pipeline_parallel"]
    assert list(operational["pipeline_parallel"]) == ["devices"]


@pytest.mark.parametrize(("declared", "found"), [("4", (4, 0.0)), ("{steps: 8, outer_momentum: 0.5}", (8, 0.5))])
def test_sync_every_is_a_number_of_steps_or_a_section(write, declare, declared, found):
    section = load(write(declare(f"path: keras, sync_every: {declared}, {WORKERS}"))).declaration.trainer.sync_every
    assert (section.steps, section.outer_momentum) == found


# Code that does not show whether it is a network or a whole model_fn.
UNDECIDABLE = [
    "from elsewhere import net",
    "import functools\nnet = functools.partial(print, 1)",
    "net = lambda: None",
    "class net: pass",
    "import functools\n@functools.cache\ndef net(): pass",
    "def net(): pass\ndef net(features, labels): pass",
]
NETWORKS = ["def net(*sizes): pass", "if True:\n    def net(num_classes): pass", "def net(features, num_classes): pass"]


@pytest.mark.parametrize("module", [*UNDECIDABLE, *NETWORKS])
def test_undecidable_code_and_networks_are_accepted_on_every_path(write, declare, module):
    write(f"{module}\n", "nets.py")
    write(declare("model: 'nets:net', path: keras"))
    for path in ("keras", "estimator"):
        load("mine.yaml", [f"trainer.path={path}"])
