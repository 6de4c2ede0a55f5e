"""`trainer.model_parallel` and `trainer.pipeline_parallel`: what they take, and what they are refused with."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit

LAYERS = '  model_parallel: {devices: ["cpu:0", "cpu:1"], layers: {"dense*": 1}}\n'
STAGES = "  pipeline_parallel: {stages: 2, microbatches: 4}\n"


@pytest.mark.parametrize("path", ["estimator", "keras", "keras_custom_loop"])
def test_layers_are_put_on_devices_on_every_path_and_retrain_nothing(write, good, path):
    trainer = load(write(f"{good}  path: {path}\n{LAYERS}")).declaration.trainer
    assert trainer.model_parallel.layers == {"dense*": 1}
    assert trainer.logical_cpus == 2
    deciding, operational = trainer.split()
    assert "model_parallel" in operational
    assert "model_parallel" not in deciding
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
def test_stages_are_a_number_or_lists_of_layers(write, good, declared, count, cpus, ideal):
    trainer = load(write(f"{good}  pipeline_parallel: {declared}\n")).declaration.trainer
    section = trainer.pipeline_parallel
    assert (section.stage_count, trainer.logical_cpus, section.ideal_bubble) == (count, cpus, pytest.approx(ideal))
    # What is trained is another sum, wherever the stages are.
    deciding, operational = trainer.split()
    assert "devices" not in deciding["pipeline_parallel"]
    assert list(operational["pipeline_parallel"]) == ["devices"]


@pytest.mark.parametrize(
    ("lines", "where", "reason"),
    [
        (f"{LAYERS}{STAGES}", "trainer.model_parallel", "puts the layers of each stage on its device as well"),
        ('  model_parallel: {devices: ["cpu:0"], layers: {a: 0}}\n', ".devices", "one place only"),
        ('  model_parallel: {devices: ["cpu:0", "cpu:0"], layers: {a: 0}}\n', ".devices: cpu:0", "more than once"),
        ('  model_parallel: {devices: ["cpu:0", "cpu:1"], layers: {}}\n', ".layers", "it is empty"),
        ('  model_parallel: {devices: ["cpu:0", "cpu:1"], layers: {a: 2}}\n', ".layers.a: 2", "there are 2 devices"),
        ('  model_parallel: {devices: ["tpu:0", "cpu:1"], layers: {a: 0}}\n', ".devices: tpu:0", "this is no device"),
        (f"{LAYERS[:-2]}, mesh: {{model: 2}}}}\n", ".mesh", "put whole layers on named devices"),
        (f"{LAYERS[:-2]}, layout: {{a/kernel: [null, model]}}}}\n", ".layout", "by trainer.pipeline_parallel"),
        (f"  distribution: {{train: mirrored:2}}\n{LAYERS}", "trainer.model_parallel", "each replica of mirrored"),
        (f"  distribution: {{eval: mirrored:2}}\n{STAGES}", "trainer.pipeline_parallel", "each replica of mirrored"),
        (
            f"  distribution: {{train: {{devices: {{cpu: [1]}}}}}}\n{LAYERS}",
            "trainer.distribution.train.devices",
            "trainer.model_parallel names the devices",
        ),
        (f"  gradient_accumulation: 2\n{STAGES}", "trainer.gradient_accumulation: 2", "are its microbatches"),
        ("  pipeline_parallel: {stages: 2, microbatches: 129}\n", ".microbatches: 129", "a batch has 128 examples"),
        ("  pipeline_parallel: {stages: 1, microbatches: 2}\n", ".stages", "out of range"),
        ("  pipeline_parallel: {stages: [[a], []], microbatches: 2}\n", ".stages", "with a layer each"),
        ("  pipeline_parallel: {stages: [[a], [b, a]], microbatches: 2}\n", ".stages: a", "more than once"),
        (
            '  pipeline_parallel: {stages: 3, microbatches: 2, devices: ["cpu:0", "cpu:1"]}\n',
            ".devices",
            "there are 2 for 3 stages",
        ),
    ],
)
def test_what_cannot_be_divided_so_is_refused(problems, good, lines, where, reason):
    (problem,) = problems(good + lines)
    assert where in problem.splitlines()[0]
    assert reason in problem


def test_a_built_in_network_that_normalises_is_not_cut_into_stages(problems, good):
    (problem,) = problems(f"{good.replace('model: mnist_cnn', 'model: cifar_resnet9')}{STAGES}")
    assert "cifar_resnet9 normalises by the statistics of a batch" in problem


@pytest.mark.parametrize("lines", [LAYERS, STAGES])
def test_code_that_makes_its_network_by_itself_is_refused(write, good, problems, lines):
    write("def model_fn(features, labels, mode):\n    pass\n", "own.py")
    text = good.replace("mnist_cnn", '"own:model_fn"')
    (problem,) = problems(text + lines)
    assert "own:model_fn is a whole Estimator model_fn" in problem
    write("def trainer_fn(fn_args, schema):\n    pass\n", "module.py")
    (problem,) = problems(good.replace("model: mnist_cnn", "module_file: module.py") + lines)
    assert "a module file's trainer_fn or run_fn makes its network by itself" in problem
