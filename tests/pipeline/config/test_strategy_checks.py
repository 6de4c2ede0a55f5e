"""What each strategy takes, and what is refused, with which words."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml

from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit

TRAIN, EVAL = "trainer.distribution.train", "trainer.distribution.eval"
GOOD = [
    "{}",
    "{train: {}, eval: {}, evaluator: false, max_restarts: 0, network: host}",
    "{train: {strategy: one_device}}",
    "{train: {strategy: one_device, devices: {cpu: 1}}, eval: {devices: {gpu: 1}}}",
    "{train: {strategy: mirrored}}",
    "{train: {strategy: mirrored, devices: {cpu: 2}}, eval: {strategy: mirrored, devices: {cpu: 4}}}",
    "{train: {strategy: mirrored, cross_device_ops: hierarchical_copy, num_packs: 0}}",
    "{train: {strategy: mirrored, devices: {gpu: 2}, cross_device_ops: nccl, num_packs: 4}}",
    "{train: {strategy: mirrored, devices: {cpu: null, gpu: 2}}, sharding: file}",
    "{train: {strategy: central_storage, devices: {cpu: 2}}, eval: {strategy: central_storage}}",
    "{train: {devices: {gpu: [63]}}, eval: {devices: {cpu: [1]}}}",
    "{train: {strategy: mirrored, devices: {gpu: [3, 1]}}, eval: {strategy: mirrored, devices: {cpu: [0, 2]}}}",
    "{train: {strategy: mirrored, devices: {gpu: [1, 3]}, cross_device_ops: nccl}}",
    "{train: {strategy: multi_worker_mirrored, workers: 1, devices: {gpu: [1, 3]}}}",
    "{train: {strategy: parameter_server, devices: {cpu: [0]}}, eval: {devices: {gpu: [1]}}}",
    "{train: {strategy: multi_worker_mirrored, devices: {gpu: 2}}, eval: {devices: {gpu: 1}}, evaluator: true}",
    "{train: {strategy: multi_worker_mirrored}}",
    "{train: {strategy: multi_worker_mirrored, workers: 1}}",
    "{train: {strategy: multi_worker_mirrored, workers: 8}, sharding: file}",
    "{train: {strategy: multi_worker_mirrored, workers: 64, devices: {cpu: 1}}}",
    "{train: {strategy: multi_worker_mirrored, communication: ring, bytes_per_pack: 1024, timeout_seconds: 0.5}}",
    "{train: {strategy: multi_worker_mirrored, communication: nccl, devices: {gpu: 4}}}",
    "{train: {strategy: multi_worker_mirrored}, evaluator: true, start_delay_secs: 5, throttle_secs: 30}",
    "{train: {strategy: multi_worker_mirrored}, eval: {strategy: mirrored, devices: {cpu: 2}}}",
    "{train: {strategy: one_device}, throttle_secs: 30}",
    # A worker of parameter servers takes a whole batch: 128 need not divide by 3.
    "{train: {strategy: parameter_server, workers: 3, ps: 2}}",
    "{train: {strategy: parameter_server, devices: {gpu: 2}}, evaluator: true}",
    "{train: {strategy: tpu, tpu: 'grpc://10.0.0.2:8470'}}",
    "{train: {strategy: tpu, tpu: my-tpu}, eval: {strategy: mirrored}}",
]


@pytest.mark.parametrize("distribution", GOOD)
def test_what_is_accepted(write, good, distribution):
    write(f"{good}  distribution: {distribution}\n")
    loaded = load("mine.yaml").declaration.trainer.distribution.dict()
    assert _part(loaded, yaml.safe_load(distribution)) == yaml.safe_load(distribution)


def _part(values: dict, like: dict) -> dict:
    return {key: _plain(values[key], value) for key, value in like.items()}


def _plain(value: Any, like: Any) -> Any:
    if isinstance(like, dict):
        return _part(value, like)
    # Lists are kept as what cannot change.
    return list(value) if isinstance(value, tuple) else value


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
OF_ANOTHER = [(s, key, value, owners) for key, value, owners in OPTIONS for s in STRATEGIES if s not in owners]


@pytest.mark.parametrize(("strategy", "key", "value", "owners"), OF_ANOTHER)
def test_an_option_of_another_strategy(problems, good, strategy, key, value, owners):
    named = ", tpu: my-tpu" if strategy == "tpu" else ""
    names = " or ".join(owners)
    assert problems(f"{good}  distribution: {{train: {{strategy: {strategy}, {key}: {value}{named}}}}}\n") == [
        f"mine.yaml:8  {TRAIN}.{key}: {value}\n"
        f"the strategy {strategy} takes no {key}\n"
        f"expected: {key} only with the strategy {names}\n"
        f"to do:    remove it, or set {TRAIN}.strategy to {names}"
    ]


# What is declared, and each problem: place and value, reason, what was expected, what to do.
BAD = {
    "packs of what is not packed": (
        "{train: {strategy: mirrored, num_packs: 2}}",
        (
            f"{TRAIN}.num_packs: 2",
            "reduction_to_one_device packs no gradients",
            "num_packs only with the cross_device_ops hierarchical_copy or nccl",
            f"remove it, or set {TRAIN}.cross_device_ops to hierarchical_copy",
        ),
    ),
    # Between workers TensorFlow takes it without a word, and then uses something else.
    **{
        f"nccl without GPUs: {section}": (
            f"{{{section}}}",
            (
                f"{path}.{key}: nccl",
                "nccl adds up gradients on GPUs, and no GPU is declared",
                f"{path}.devices: {{gpu: N}}, N of each process",
                f"declare the GPUs, or set {path}.{key} to {instead}",
            ),
        )
        for section, path, key, instead in (
            (
                "train: {strategy: mirrored, devices: {cpu: 2}, cross_device_ops: nccl}",
                TRAIN,
                "cross_device_ops",
                "reduction_to_one_device",
            ),
            ("eval: {strategy: mirrored, cross_device_ops: nccl}", EVAL, "cross_device_ops", "reduction_to_one_device"),
            ("train: {strategy: multi_worker_mirrored, communication: nccl}", TRAIN, "communication", "ring"),
        )
    },
    "TensorFlow's own cross-device operation": (
        "{train: {strategy: mirrored, cross_device_ops: auto}}",
        (
            f"{TRAIN}.cross_device_ops: auto",
            "`auto`: TensorFlow's own choice hangs in an Estimator on CPU; known here: reduction_to_one_device, "
            "hierarchical_copy, nccl",
            "one of reduction_to_one_device, hierarchical_copy, nccl (how `mirrored` adds up gradients)",
            "choose one of: reduction_to_one_device, hierarchical_copy, nccl",
        ),
    ),
    "devices of both kinds": (
        "{train: {strategy: mirrored, devices: {cpu: 2, gpu: 2}}}",
        (
            f"{TRAIN}.devices",
            "both cpu and gpu are given",
            "one of the two",
            f"remove one: --set {TRAIN}.devices.cpu=null",
        ),
    ),
    "several devices of one_device": (
        "{eval: {devices: {cpu: 3}}}",
        (
            f"{EVAL}.devices",
            "the strategy one_device uses one device, not 3",
            "1, or a strategy of several devices: mirrored or central_storage",
            f"remove the devices, or set {EVAL}.strategy to mirrored",
        ),
    ),
    **{
        f"CPU devices in {strategy}": (
            f"{{train: {{strategy: {strategy}, devices: {{cpu: 3}}}}}}",
            (
                f"{TRAIN}.devices",
                f"TensorFlow uses one CPU device in each process of {strategy}, and ignores the others",
                "no devices, or cpu: 1; not cpu: 3",
                f"remove the devices; for more replicas raise {TRAIN}.workers",
            ),
        )
        for strategy in ("multi_worker_mirrored", "parameter_server")
    },
    **{
        f"another CPU device in {strategy}": (
            f"{{train: {{strategy: {strategy}, devices: {{cpu: [1]}}}}}}",
            (
                f"{TRAIN}.devices",
                f"TensorFlow uses one CPU device in each process of {strategy}, and ignores the others",
                "no devices, or cpu: 1; not cpu: [1]",
                f"remove the devices; for more replicas raise {TRAIN}.workers",
            ),
        )
        for strategy in ("multi_worker_mirrored", "parameter_server")
    },
    **{
        f"GPUs {indices} {share}": (
            f"{{{section}}}",
            (
                f"{path}.devices.gpu: {indices}",
                f"a list names the GPUs of one process, and {share} share this machine: each needs its own",
                f"how many GPUs each process gets, gpu: {count}; or a list, where TF_CONFIG describes the cluster",
                f"set {path}.devices.gpu to {count}; CUDA_VISIBLE_DEVICES says which GPUs there are to share out",
            ),
        )
        for section, path, indices, count, share in (
            ("train: {strategy: multi_worker_mirrored, devices: {gpu: [1, 3]}}", TRAIN, "[1, 3]", 2, "2 workers"),
            (
                "train: {strategy: parameter_server, workers: 4, devices: {gpu: [0]}}, evaluator: true",
                TRAIN,
                "[0]",
                1,
                "4 workers and an evaluator",
            ),
            (
                "train: {strategy: multi_worker_mirrored, workers: 1}, eval: {devices: {gpu: [2]}}, evaluator: true",
                EVAL,
                "[2]",
                1,
                "1 worker and an evaluator",
            ),
        )
    },
    "a list of several devices of one_device": (
        "{train: {devices: {gpu: [1, 3]}}}",
        (
            f"{TRAIN}.devices",
            "the strategy one_device uses one device, not 2",
            "1, or a strategy of several devices: mirrored or central_storage",
            f"remove the devices, or set {TRAIN}.strategy to mirrored",
        ),
    ),
    "a TPU without a name": (
        "{train: {strategy: tpu}}",
        (
            f"{TRAIN}.tpu",
            "the strategy tpu needs to know which TPU",
            "its address, grpc://HOST:8470, or its name",
            f"set {TRAIN}.tpu",
        ),
    ),
    "a TPU with an empty name and devices": (
        "{train: {strategy: tpu, tpu: ' ', devices: {cpu: 2, gpu: 3}}}",
        (f"{TRAIN}.devices", "the strategy tpu trains on the TPU's own cores", "no devices", "remove the devices"),
        (
            f"{TRAIN}.tpu: ' '",
            "the strategy tpu needs to know which TPU",
            "its address, grpc://HOST:8470, or its name",
            f"set {TRAIN}.tpu",
        ),
    ),
    **{
        f"an evaluation with {strategy}": (
            f"{{train: {{strategy: multi_worker_mirrored}}, eval: {{strategy: {strategy}}}}}",
            (
                f"{EVAL}.strategy: {strategy}",
                f"`{strategy}`: {reason}; known here: one_device, mirrored, central_storage",
                "one of one_device, mirrored, central_storage (the tf.distribute strategy)",
                "choose one of: one_device, mirrored, central_storage",
            ),
        )
        for strategy, reason in (
            ("multi_worker_mirrored", "only training runs in a cluster, evaluation runs in one process"),
            ("parameter_server", "only training runs in a cluster, evaluation runs in one process"),
            ("tpu", "this version evaluates on CPU or GPU"),
        )
    },
    **{
        f"an evaluation with {key}": (
            f"{{eval: {{{key}: {value}}}}}",
            (
                f"{EVAL}.{key}: {value}",
                f"this key is of training only: {reason}",
                "one of strategy, devices, cross_device_ops, num_packs",
                "remove it",
            ),
        )
        for key, value, reason in (
            ("workers", "2", "evaluation runs in one process"),
            ("ps", "2", "evaluation runs in one process"),
            ("communication", "ring", "evaluation runs in one process"),
            ("bytes_per_pack", "5", "evaluation runs in one process"),
            ("gradient_compression", "fp16", "evaluation runs in one process"),
            ("timeout_seconds", "5", "evaluation runs in one process"),
            ("tpu", "my-tpu", "this version evaluates on CPU or GPU"),
        )
    },
    "an evaluator beside one process": (
        "{train: {strategy: mirrored}, evaluator: true}",
        (
            "trainer.distribution.evaluator: true",
            "an evaluator stands beside a cluster; the strategy mirrored has one process, which evaluates as well",
            "false, or the strategy multi_worker_mirrored or parameter_server",
            f"remove it, or change {TRAIN}.strategy",
        ),
    ),
    **{
        f"{key} without an evaluator": (
            f"{{train: {{strategy: multi_worker_mirrored}}, {key}: 5}}",
            (
                f"trainer.distribution.{key}: 5",
                "it sets the pace of the evaluator task, and there is none",
                f"{key} only with evaluator: true",
                "remove it, or set trainer.distribution.evaluator to true",
            ),
        )
        for key in ("start_delay_secs", "throttle_secs")
    },
    "several mistakes": (
        "{train: {strategy: one_device, workers: 2, devices: {cpu: 3}}, evaluator: true, network: privat}",
        (
            "trainer.distribution.network: privat",
            "unknown value",
            "one of private, host (where a cluster on this machine listens: in a network of its own, or, without "
            "authentication, on every address of this machine)",
            "did you mean `private`?",
        ),
        (
            f"{TRAIN}.workers: 2",
            "the strategy one_device takes no workers",
            "workers only with the strategy multi_worker_mirrored or parameter_server",
            f"remove it, or set {TRAIN}.strategy to multi_worker_mirrored or parameter_server",
        ),
        # And not that 128 examples do not divide among 3 devices: that follows from it.
        (
            f"{TRAIN}.devices",
            "the strategy one_device uses one device, not 3",
            "1, or a strategy of several devices: mirrored or central_storage",
            f"remove the devices, or set {TRAIN}.strategy to mirrored",
        ),
        (
            "trainer.distribution.evaluator: true",
            "an evaluator stands beside a cluster; the strategy one_device has one process, which evaluates as well",
            "false, or the strategy multi_worker_mirrored or parameter_server",
            f"remove it, or change {TRAIN}.strategy",
        ),
    ),
    # All that follows from a strategy that nobody knows is left out.
    "a mistyped strategy": (
        "{train: {strategy: multi_worker_miror, workers: 3, devices: {cpu: 3}}}",
        (
            f"{TRAIN}.strategy: multi_worker_miror",
            "unknown value",
            f"one of {', '.join(STRATEGIES)} (the tf.distribute strategy)",
            "did you mean `multi_worker_mirrored`?",
        ),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(problems, good, name):
    distribution, *expected_problems = BAD[name]
    assert problems(f"{good}  distribution: {distribution}\n") == [
        f"mine.yaml:8  {place}\n{what}\nexpected: {expected}\nto do:    {todo}"
        for place, what, expected, todo in expected_problems
    ]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_asynchronous_updates_are_never_bit_equal(write, problems, good, strategy):
    tpu = ", tpu: t" if strategy == "tpu" else ""
    text = f"{good}  distribution: {{train: {{strategy: {strategy}{tpu}}}}}\n  deterministic: "
    if strategy == "parameter_server":
        assert problems(f"{text}true\n") == [
            "mine.yaml:9  trainer.deterministic: true\n"
            "the workers of parameter_server update the weights each at its own pace: no two runs end with equal bits\n"
            "expected: false, or a strategy whose replicas train in step\n"
            f"to do:    remove it, or set {TRAIN}.strategy to multi_worker_mirrored"
        ]
    else:
        write(f"{text}true\n")
        assert load("mine.yaml").declaration.trainer.deterministic
    write(f"{text}false\n")
    assert not load("mine.yaml").declaration.trainer.deterministic


def test_a_default_may_stand_at_every_strategy(write, good):
    # `show` writes every value, and what it writes can be run.
    write(good)
    defaults = load("mine.yaml").declaration.trainer.distribution.dict()
    for strategy in STRATEGIES:
        defaults["train"].update(strategy=strategy, tpu="my-tpu" if strategy == "tpu" else None)
        write(f"{good}  distribution: {defaults!r}\n".replace("None", "null"))
        assert load("mine.yaml").declaration.trainer.distribution.dict() == defaults


def test_an_override_is_named_as_the_place(refuse, good):
    message = refuse(good, [f"{TRAIN}.strategy=mirrored", f"{TRAIN}.workers=2"])
    assert f"--set {TRAIN}.workers=2  {TRAIN}.workers: 2\n" in message


def test_checking_a_cluster_imports_no_tensorflow(write, good):
    file = write(f"{good}  distribution: {{train: {{strategy: multi_worker_mirrored}}, evaluator: true}}\n")
    code = "import sys; from tfx_estimator.pipeline.config import load; load(sys.argv[1]); print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code, file], capture_output=True, text=True, check=True)
    assert not {"tensorflow", "numpy", "tfx"} & set(told.stdout.split())
