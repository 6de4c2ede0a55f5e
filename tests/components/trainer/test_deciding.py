"""The best checkpoint is exported, and training stops without further improvement, on each path."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.components.trainer.conftest import served_accuracy
from tfx_estimator.components.trainer.best.decision import Record
from tfx_estimator.pipeline.base import errors

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

# A higher loss counts as better, so the first checkpoint is the best and later ones are worse.
WORST = {"metric": "average_loss", "mode": "max"}
WORKERS = {"train": {"strategy": "multi_worker_mirrored", "workers": 2}}
COMPILED = "compiled_models:functional"


@pytest.fixture
def run(tmp_path, train):
    """Trains the user's model for 100 steps with these options of the trainer."""

    def run(path: str = "estimator", kill_at: int = 0, steps: int = 100, **section):
        params = {"kill_at": kill_at, "marker": str(tmp_path / "marker")}
        own = {"model": "killed:network", "params": params}
        if path == "estimator":
            own = {"model": "killed:model_fn", "params": {"ruin_at": 40, **params}}
        values = {"save_checkpoints_steps": 20, "keep_checkpoint_max": 1, **({} if "model" in section else own)}
        return train(path, steps, **{**values, **section})

    return run


def recorded(model_run) -> dict[int, dict[str, float]]:
    return {each.step: each.metrics for each in Record.load(model_run.uri)}


def kept(model_run) -> set[str]:
    return {path.name for path in Path(model_run.uri, "best").glob("*.index")}


def check_end(model, model_run, digits, restarts: int, best: int) -> dict[int, float]:
    """Checks a training that ended at step 80 and exported its best; returns the accuracy of each evaluation."""
    number = model_run.get_float_custom_property
    assert (number("restarts"), number("last_step"), number("exported_step")) == (restarts, 80, best)
    record = {step: metrics["accuracy"] for step, metrics in recorded(model_run).items()}
    assert list(record) == [20, 40, 60, 80]
    assert number("eval_accuracy") == record[best]
    assert served_accuracy(model, digits["examples"][0].uri) == pytest.approx(record[best], abs=1e-6)
    assert kept(model_run) == {f"best.ckpt-{best}.index"}
    return record


def test_training_stops_without_improvement_and_exports_the_best_with_and_without_a_kill(run, digits):
    """Step 40 is the best, 60 and 80 are worse; it is killed after 60, and only the last checkpoint is kept."""
    model, model_run = run(kill_at=70, keep_best="accuracy", early_stopping={"metric": "loss", "patience": 2})
    record = check_end(model, model_run, digits, restarts=1, best=40)
    assert record[80] < record[40] - 0.2
    assert record[40] == max(record.values())
    exported = model_run.get_string_custom_property("exported")
    assert exported.startswith("step 40: the best accuracy, 0.")
    assert "of 4 evaluations; the last, of step 80: 0." in exported
    reason = model_run.get_string_custom_property("stopped_early")
    assert reason.startswith("at step 80 of 100: loss has not improved on ")
    assert reason.endswith(", of step 40, for 2 evaluations")


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "options", "restarts"),
    [
        ("keras_custom_loop", {"kill_at": 70}, 1),
        # Evaluates inside its strategy.
        ("keras", {"distribution": {"train": "mirrored:2", "eval": "mirrored:2"}}, 0),
    ],
)
def test_the_keras_paths_do_the_same(run, digits, path, options, restarts):
    """Step 20 is the best; 40, 60 and 80 are worse."""
    sgd = {"name": "sgd", "learning_rate": 0.01, "schedule": "constant"}
    rules = {"keep_best": WORST, "early_stopping": {**WORST, "patience": 3}}
    model, model_run = run(path, optimizer=sgd, **rules, **options)
    record = check_end(model, model_run, digits, restarts, best=20)
    assert record[20] < record[80] - 0.01
    reason = model_run.get_string_custom_property("stopped_early")
    assert reason.startswith("at step 80 of 100: average_loss has not improved on ")


@pytest.mark.long
def test_a_longer_training_remembers_the_earlier_best(run):
    _, model_run = run(keep_best="accuracy")
    assert model_run.get_float_custom_property("exported_step") == 40
    assert list(recorded(model_run)) == [20, 40, 60, 80, 100]
    _, model_run = run(keep_best="accuracy", steps=120)
    number = model_run.get_float_custom_property
    assert (number("first_step"), number("last_step"), number("exported_step")) == (100, 120, 40)
    assert list(recorded(model_run)) == [20, 40, 60, 80, 100, 120]


@pytest.mark.parametrize(
    ("path", "section", "those"),
    [
        ("estimator", {}, "accuracy, loss"),
        pytest.param("estimator", {"distribution": {"eval": "mirrored:2"}}, "accuracy, loss", marks=pytest.mark.long),
        # Metrics of compile, which exist after an evaluation, are included.
        *(
            pytest.param(path, {"model": COMPILED}, "accuracy, average_loss, loss, top2", marks=pytest.mark.long)
            for path in ("keras", "keras_custom_loop")
        ),
    ],
)
def test_a_metric_that_the_model_does_not_report_is_refused_before_the_first_step(run, training, path, section, those):
    with pytest.raises(errors.UserCodeError, match="the evaluation reports no `auc`") as caught:
        run(path, keep_best="auc", **section)
    assert f"one of {those}" in str(caught.value)
    assert not list(training.root.rglob("model.ckpt-*"))


@pytest.mark.long
@pytest.mark.parametrize(("path", "model"), [("estimator", None), ("keras", COMPILED)])
def test_the_evaluator_of_a_cluster_reports_it_without_a_checkpoint(run, path, model):
    # Training would take minutes, and the first checkpoint, of step 0, is evaluated only then.
    distribution = {**WORKERS, "evaluator": True, "start_delay_secs": 600}
    section = {"early_stopping": "auc", "distribution": distribution, **({"model": model} if model else {})}
    with pytest.raises(errors.UserCodeError, match=r"early_stopping\.metric: the evaluation reports no `auc`"):
        run(path, steps=1_000_000, save_checkpoints_steps=1_000_000, **section)


@pytest.mark.long
@pytest.mark.parametrize("path", ["estimator", "keras", "keras_custom_loop"])
def test_the_evaluator_of_a_cluster_stops_all_its_tasks_and_the_best_checkpoint_is_the_model(run, digits, path):
    """It learns at once, and then improves by less than min_delta."""
    steps = 4000 if path == "estimator" else 20_000
    model, model_run = run(
        path,
        model="mnist_cnn",
        steps=steps,
        save_checkpoints_steps=50,
        keep_checkpoint_max=5,
        keep_best="average_loss",
        early_stopping={"metric": "accuracy", "patience": 2, "min_delta": 0.2},
        distribution={**WORKERS, "evaluator": True},
    )
    number = model_run.get_float_custom_property
    assert number("last_step") < steps
    assert number("restarts") == 0
    reason = model_run.get_string_custom_property("stopped_early")
    assert reason.startswith(f"at step {number('last_step'):,.0f} of {steps:,}: accuracy has not improved on ")
    best = min(Record.load(model_run.uri), key=lambda each: each.metrics["average_loss"])
    assert number("exported_step") == best.step
    assert served_accuracy(model, digits["examples"][0].uri) == pytest.approx(best.metrics["accuracy"], abs=1e-6)
    assert list(Path(model_run.uri, "logs").glob("*.error.json")) == []


@pytest.mark.long
@pytest.mark.parametrize("distribution", [{}, WORKERS])
def test_an_evaluation_that_is_not_a_number_ends_nothing_and_is_never_best(run, digits, distribution):
    section = {"model": "killed:recovering", "keep_best": "loss", "keep_checkpoint_max": 5}
    model, model_run = run("keras", distribution={**distribution, "throttle_secs": 1}, **section)
    record = {step: metrics["loss"] for step, metrics in recorded(model_run).items()}
    assert record[100] > 0
    if not distribution:
        assert [step for step, loss in record.items() if math.isnan(loss)] == [20]
    best = min(step for step, loss in record.items() if loss == min(each for each in record.values() if each > 0))
    assert model_run.get_float_custom_property("exported_step") == best
    assert served_accuracy(model, digits["examples"][0].uri) > 0.2


@pytest.mark.long
def test_the_search_for_metrics_does_not_change_the_training(train):
    section = {"model": "compiled_models:softmax", "deterministic": True}
    early = {"early_stopping": {"metric": "top2", "patience": 100}}
    plain, watched = (train("keras", **section, **each)[1] for each in ({}, early))
    for name in ("eval_loss", "eval_top2"):
        assert watched.get_float_custom_property(name) == plain.get_float_custom_property(name) > 0
