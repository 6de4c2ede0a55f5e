"""The section `tune`: accepted ranges, and refusals before anything runs."""

from __future__ import annotations

import contextlib

import pytest

from tests.pipeline.runners.deployed import COMMON, OF_TARGET
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import Declaration, load
from tfx_estimator.pipeline.config.rules.tune import combinations, is_whole
from tfx_estimator.pipeline.config.tune import Hyperband, Range
from tfx_estimator.pipeline.config.yaml_text import render

RATE = "trainer.optimizer.learning_rate"
TUNE = """\
tune:
  max_trials: 4
  ranges:
    trainer.optimizer.learning_rate: {min: 1e-4, max: 0.1, sampling: log}
    trainer.global_batch_size: [32, 64]
"""


PIECES = "optimizer: {schedule: piecewise, boundaries: [10], values: [0.1, 0.01]}"


def ranges(*lines: str) -> str:
    return "tune:\n  ranges:\n" + "".join(f"    {line}\n" for line in lines)


def test_ranges_are_read_in_each_form_and_come_back_as_they_were(write, good):
    tune = load(write(good + TUNE)).declaration.tune
    assert list(tune.ranges) == [RATE, "trainer.global_batch_size"]
    assert tune.ranges[RATE].extremes == (1e-4, 0.1)
    assert tune.ranges["trainer.global_batch_size"].extremes == (32, 64)
    assert (tune.objective.metric, tune.objective.better) == ("accuracy", "max")
    loaded = load("mine.yaml")
    assert loaded.origins[f"tune.ranges.{RATE}.min"] == "mine.yaml:11"
    assert "the best of the trials" in loaded.origins[RATE]
    assert load(write(render(loaded.declaration.dict()), "again.yaml")).declaration == loaded.declaration
    assert Declaration.from_json(loaded.declaration.to_json()) == loaded.declaration


def test_nested_sections_and_overrides_are_dotted_paths(write, good):
    write(good + ranges("trainer:", "  optimizer: {learning_rate: [0.1, 0.2]}", "  seed: {min: 1, max: 9}"))
    tune = load("mine.yaml", ["tune.ranges.trainer.label_smoothing=[0.0, 0.1]"]).declaration.tune
    assert list(tune.ranges) == [RATE, "trainer.seed", "trainer.label_smoothing"]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("trainer.optimizer.learning_rat: [1, 2]", "did you mean `learning_rate`?"),
        ("data.shards: [1, 2]", "compare it: `tfx-estimator compare FILE --vary data.shards=VALUE,VALUE`"),
        ("evaluator.min_accuracy: [0.1, 0.2]", "it evaluates, serves or pushes a model that is already trained"),
        ("trainer.model: [mnist_cnn, cifar_cnn]", "the source of one model"),
        ("trainer.distribution.train.workers: [2, 3]", "bench strategies"),
        ("trainer.keep_checkpoint_max: [1, 2]", "it affects how training runs, not the model"),
        ("deploy.image: [a, b]", "it affects how the pipeline runs"),
        ("trainer.optimizer.name: [adam, adamm]", "adamm: unknown value"),
        ("trainer.label_smoothing: {min: 0.5, max: 1.5}", "1.5: the value is out of range"),
        ("trainer.optimizer.warmup_steps: [10, 600]", "600: "),
        ("trainer.seed: {}", "neither a list of values nor min and max"),
        ("trainer.seed: {min: 3, max: 3}", "max is not more than min, 3"),
        ("trainer.seed: {min: 0, max: 9, sampling: log}", "a logarithm has no such values"),
        ("trainer.seed: {min: 1, max: 9, step: 20}", "no second value lies within the range"),
        ("trainer.seed: {min: 1, max: 9, step: 1, sampling: log}", "above 1, by which values are multiplied"),
        ("trainer.augment.0.random_crop.padding: [1, 2]", "trainer.augment holds [], and has no item 0"),
        ("trainer.train_steps: [10, 20]\n  train_steps: 50", "tune.train_steps fixes the steps"),
    ],
)
def test_a_wrong_range_is_refused_with_a_fix(problems, good, line, text):
    found = problems(good + ranges(line))
    assert any(text in problem for problem in found), found
    assert all(problem.startswith(("mine.yaml:10  tune.ranges", "mine.yaml:9  tune.ranges")) for problem in found)


@pytest.mark.parametrize(
    ("declared", "line", "values"),
    [
        ("optimizer: {}", "trainer.optimizer.clip_norm: [null, 1.0]", (None, 1.0)),
        ("optimizer: {}", "trainer.augment: [[], [random_flip]]", ([], ["random_flip"])),
        ("optimizer: {}", "trainer.optimizer: [{name: adam}, {name: sgd}]", ({"name": "adam"}, {"name": "sgd"})),
        ("optimizer: {}", "trainer.early_stopping: [null, average_loss]", (None, "average_loss")),
        ("optimizer: {}", 'trainer.class_weights: [null, balanced, {"8": 2}]', (None, "balanced", {"8": 2})),
        ("optimizer: {}", "trainer.class_weights.8: {min: 1, max: 3}", (1, 3)),
        ("augment: [cutout, {random_crop: {padding: 2}}]", "trainer.augment.1.random_crop.padding: [1, 2]", (1, 2)),
        (PIECES, "trainer.optimizer.values.0: {min: 0.1, max: 1, sampling: log}", (0.1, 1)),
    ],
)
def test_any_declared_value_can_be_varied(write, good, declared, line, values):
    loaded = load(write(f"{good}  {declared}\n" + ranges(line))).declaration
    (varied,) = loaded.tune.ranges.values()
    assert varied.extremes == values
    assert load(write(render(loaded.dict()), "again.yaml")).declaration == loaded


def test_an_extreme_is_checked_with_the_whole_declaration(problems, good):
    distributed = good + '  distribution: {train: "mirrored:2"}\n'
    [problem] = problems(distributed + ranges("trainer.global_batch_size: [31, 64]"))
    assert problem.startswith("mine.yaml:11  tune.ranges.trainer.global_batch_size: 31, 64")
    assert "31 examples do not divide evenly among 2 devices" in problem


def test_a_value_is_checked_for_the_target_of_the_pipeline(write, good):
    file = write(good + TUNE)
    # The volume's path is that of a file on this machine.
    places = (f"deploy.volumes=[{{claim: data, path: {file}}}]", f"pusher.destination={file}/served")
    sets = (*COMMON, *OF_TARGET["kubeflow"], *places)
    assert load(file, sets, "kubeflow").declaration.tune is not None


def test_a_problem_outside_the_ranges_is_reported_once(problems, good):
    found = problems(good.replace("mnist_cnn", "nothing:here") + TUNE)
    assert len(found) == 1
    assert "trainer.model" in found[0]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("  objective: acuracy\n", "did you mean `accuracy`?"),
        ("  strategy: hyperband\n  train_steps: 10\n", "tune.hyperband.max_steps"),
        ("  strategy: hyperband\n  hyperband: {min_steps: 400}\n", "no trial would continue"),
    ],
)
def test_a_wrong_section_is_refused(problems, good, lines, text):
    found = problems(good + TUNE.replace("  max_trials: 4\n", "") + lines)
    assert len(found) == 1
    assert text in found[0]


def test_too_few_values_for_hyperband_are_refused(problems, good):
    few = ranges("trainer.global_batch_size: [16, 32, 48, 64]") + "  strategy: hyperband\n"
    [problem] = problems(good + few + "  hyperband: {max_steps: 900, min_steps: 100}\n")
    assert "hyperband starts 17 different trials, and the ranges have 4 combinations" in problem


def test_the_shortest_trials_must_be_long_enough_for_the_declaration(write, problems, good):
    declared = good + "  optimizer: {warmup_steps: 60}\n"
    declared += "  profile: {start_step: 90}\n" + TUNE.replace("  max_trials: 4\n", "")
    # Trials of 56, 167 and 500 steps; none is profiled.
    found = problems(declared + "  strategy: hyperband\n")
    assert [each.splitlines()[1].partition(":")[0] for each in found] == [
        "the shortest trials have 56 steps; with so few, trainer.optimizer.warmup_steps"
    ]
    assert load(write(declared + "  strategy: hyperband\n  hyperband: {min_steps: 100}\n")).declaration.tune is not None
    # With another strategy all trials have the same length.
    found = problems(declared + "  train_steps: 55\n")
    assert [each.splitlines()[1].partition(":")[0] for each in found] == [
        "trials have 55 steps; with so few, trainer.optimizer.warmup_steps"
    ]
    # Varied options are checked too.
    warm = ranges("trainer.optimizer.warmup_steps: [0, 200]") + "  train_steps: 100\n"
    [problem] = problems(good + warm)
    assert problem.splitlines()[1] == "200: the warm-up does not end before training does"


def test_a_module_file_must_read_its_hyperparameters(write, problems, good):
    module = good.replace("model: mnist_cnn", "module_file: own.py")
    lines = ranges("units: [8, 16]", "trainer.optimizer.learning_rate: [0.1, 0.2]")
    write("def trainer_fn(fn_args, schema): ...\n", "own.py")
    found = problems(module + lines + "  objective: auc\n")
    for text, problem in zip(("the module file does not read fn_args.hyperparameters", "brings its own"), found):
        assert text in problem
    write("def trainer_fn(fn_args, schema): return fn_args.hyperparameters['values']\n", "own.py")
    assert load(write(module + ranges("units: [8, 16]") + "  objective: auc\n")).declaration.tune is not None
    write("def run_fn(fn_args): return fn_args.hyperparameters\n", "own.py")
    [problem] = problems(module + ranges("units: [8, 16]"))
    assert "a run_fn evaluates by itself" in problem


def test_combinations_are_counted_where_ranges_have_steps():
    assert combinations({"trainer.seed": Range(min=1, max=9, step=4)}) == 3
    assert combinations({"trainer.seed": Range(min=1, max=9), "a": Range(values=(1, 2))}) == 18
    assert combinations({RATE: Range(min=1, max=9)}) is None
    assert combinations({"a": Range(min=1, max=8, step=2, sampling="log")}) == 4


def test_ranges_of_whole_numbers_are_recognized():
    for path in ("trainer.seed", "trainer.augment.0.random_crop.padding", "trainer.params.width"):
        assert is_whole(path, Range(min=1, max=9))
    assert not is_whole(RATE, Range(min=1, max=9))
    assert not is_whole("trainer.class_weights.8", Range(min=1, max=9))
    assert not is_whole("trainer.params.rate", Range(min=1, max=9.5))


def test_rounds_of_hyperband():
    assert Hyperband().rounds(900) == 3  # 100, 300, 900
    assert Hyperband(min_steps=10, factor=2).rounds(80) == 4
    assert Hyperband(min_steps=50).rounds(100) == 1


@pytest.mark.parametrize(
    ("preset", "objective", "path", "right"),
    [
        ("cancer", "auc", "keras", True),
        ("cancer", "precision", "keras", False),
        ("cancer", "precision", "estimator", True),
        ("diabetes", "average_loss", "keras", True),
        ("diabetes", "accuracy", "estimator", False),
        ("diabetes", "skill", "estimator", False),
    ],
)
def test_the_objective_of_a_table_s_model_is_one_that_its_evaluation_reports(preset, objective, path, right):
    sets = ["tune.ranges={trainer.params.hidden_units: [[8], [16, 8]]}", f"trainer.path={path}"]
    with contextlib.nullcontext() if right else pytest.raises(DeclarationError, match=f"reports no `{objective}`"):
        load(preset, [*sets, f"tune.objective={objective}"])
