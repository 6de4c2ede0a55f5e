"""A compiled Keras model of the user's, on the Keras paths: its own loss, optimizer, metrics; a network's outputs."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.components.trainer.conftest import Training, make_digits, numbers
from tests.equivalence.conftest import read_losses
from tfx_estimator.pipeline.base.errors import TfxEstimatorError

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

HERE = Path(__file__).resolve().parent
STEPS = 6
# Of float32.
CLOSE = 1e-5
STRATEGIES: dict[str, dict[str, Any]] = {
    "one_device": {"strategy": "one_device"},
    "mirrored": {"strategy": "mirrored", "devices": {"cpu": 2}},
    "central_storage": {"strategy": "central_storage", "devices": {"cpu": 2}},
    "workers": {"strategy": "multi_worker_mirrored", "workers": 2},
}
OUTPUTS = ["class_ids", "classes", "logits", "probabilities"]


@pytest.fixture
def train(training, settings, monkeypatch):
    """Trains a model of `compiled_models`; returns the exported model's folder and the model_run."""
    monkeypatch.syspath_prepend(str(HERE / "user"))
    return functools.partial(_train, training, settings)


@pytest.fixture(scope="module")
def alone(digits, settings, tmp_path_factory):
    """The losses and metrics of an uninterrupted training on one device."""
    training = Training(tmp_path_factory.mktemp("alone") / "Trainer", digits)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE / "user"))
        _, run = _train(training, settings, "functional", 2 * STEPS, path="keras")
    return _losses(run), _metrics(run)


def _train(training: Training, settings: Any, model: str, steps: int = STEPS, **trainer: Any) -> tuple[Path, Any]:
    section = {
        "model": f"compiled_models:{model}",
        "train_steps": steps,
        "save_checkpoints_steps": 3,
        "log_every_steps": 1,
        # 360 examples: the last batch has another size than the others.
        "eval_batch_size": 100,
        **trainer,
        "distribution": {"max_restarts": 0, **trainer.get("distribution", {})},
    }
    declared = tuple(f"trainer.optimizer.{name}" for name in trainer.get("optimizer", {}))
    path = section.get("path", "estimator")
    served, run = training.run(settings(trainer=section, declared=declared, path=path), steps)
    # Only an Estimator writes this file.
    assert Path(run.uri, "graph.pbtxt").exists() == (path == "estimator")
    return served, run


def _notices(run: Any) -> list[str]:
    (log,) = (Path(run.uri) / "logs").glob("chief-0.attempt-1.progress.jsonl")
    events = map(json.loads, log.read_text().splitlines())
    return [event["text"] for event in events if event["event"] == "noticed"]


def _losses(run: Any) -> list[float]:
    losses = dict(read_losses(run.uri))
    return [losses[step] for step in sorted(losses)]


def _steps(run: Any) -> list[float]:
    return numbers(run, "first_step", "last_step")


def _metrics(run: Any) -> list[float]:
    found = numbers(run, "eval_average_loss", "eval_accuracy", "eval_top2")
    # A missing metric is 0.
    assert min(found) > 0
    return found


def _answers(model: Path, count: int = 8) -> dict[str, np.ndarray]:
    """Returns the exported model's answers to images, which are the same for examples."""
    from tfx_estimator.testing import export_and_serve

    images = np.random.default_rng(1).integers(256, size=(count, 28, 28, 1)).astype(np.uint8)
    served = str(model / "Format-Serving")
    found = export_and_serve(served, [{"images": image} for image in images], signature="images")
    by_examples = export_and_serve(served, [{"image": image.tobytes()} for image in images])
    for name, each in found.items():
        if each.dtype.kind == "f":
            np.testing.assert_allclose(each, by_examples[name], rtol=0, atol=1e-6)
    return found


@pytest.mark.long
def test_it_is_trained_with_its_own_loss_and_a_notice_says_so(train, alone):
    mirrored = {"train": STRATEGIES["mirrored"], "eval": STRATEGIES["mirrored"]}
    model, run = train("functional", 2 * STEPS, path="keras", distribution=mirrored, optimizer={"learning_rate": 0.5})
    losses, metrics = alone
    assert len(losses) == 2 * STEPS
    np.testing.assert_allclose(_losses(run), losses, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(_metrics(run), metrics, rtol=0, atol=1e-4)
    assert _steps(run) == [0, 2 * STEPS]
    brings, vain = _notices(run)
    assert brings.startswith("compiled_models:functional returns a compiled model: it is trained by its own ")
    assert brings.endswith("optimizer, SGD, and loss, SparseCategoricalCrossentropy")
    assert vain.startswith("trainer.optimizer.learning_rate has no effect")
    answers = _answers(model)
    assert sorted(answers) == OUTPUTS
    np.testing.assert_allclose(answers["probabilities"].sum(axis=1), 1, rtol=0, atol=CLOSE)


@pytest.mark.long
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("optimizer", ["new", "legacy"])
@pytest.mark.parametrize("path", ["keras", "keras_custom_loop"])
def test_every_strategy_trains_it_and_resumes(train, alone, path, optimizer, strategy):
    section = {"path": path, "params": {"optimizer": optimizer}, "distribution": {"train": STRATEGIES[strategy]}}
    _, half = train("functional", STEPS, **section)
    _, whole = train("functional", 2 * STEPS, **section)
    assert [_steps(half), _steps(whole)] == [[0, STEPS], [STEPS, 2 * STEPS]]
    losses, metrics = alone
    np.testing.assert_allclose(_losses(whole), losses, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(_metrics(whole), metrics, rtol=0, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("path", ["keras", "keras_custom_loop"])
def test_a_model_of_probabilities_serves_them(train, path):
    model, run = train("softmax", 60, path=path)
    answers = _answers(model)
    assert sorted(answers) == OUTPUTS
    np.testing.assert_allclose(answers["probabilities"].sum(axis=1), 1, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(np.exp(answers["logits"]), answers["probabilities"], rtol=0, atol=CLOSE)
    assert run.get_float_custom_property("eval_accuracy") > 0.6


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["one_device", "mirrored"])
@pytest.mark.parametrize("path", ["keras", "keras_custom_loop"])
def test_its_own_train_step_is_used(train, alone, path, strategy):
    distribution = {"train": STRATEGIES[strategy]}
    _, run = train("own_step", 2 * STEPS, path=path, distribution=distribution)
    losses, metrics = alone
    if strategy == "one_device":
        np.testing.assert_allclose(_losses(run), losses, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(_metrics(run), metrics, rtol=0, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("model", ["two_outputs", "pair"])
def test_several_outputs_are_trained_and_served_alike_on_both_paths(train, model):
    found = []
    for path in ("keras", "keras_custom_loop"):
        served, run = train(model, path=path)
        answers = _answers(served)
        assert sorted(answers) == (["again", "digit"] if model == "two_outputs" else ["output_1", "output_2"])
        found.append((_losses(run), run.get_float_custom_property("eval_average_loss"), answers))
    (losses, evaluated, answers), (other, others_evaluated, others_answers) = found
    assert losses[-1] < losses[0]
    np.testing.assert_allclose(other, losses, rtol=0, atol=CLOSE)
    assert others_evaluated == pytest.approx(evaluated, abs=1e-4)
    for name, each in answers.items():
        np.testing.assert_allclose(others_answers[name], each, rtol=0, atol=1e-4)


@pytest.mark.long
def test_its_batches_are_not_split(train):
    with pytest.raises(TfxEstimatorError, match=r"gradient_accumulation is declared, and .* returns a compiled model"):
        train("functional", path="keras", gradient_accumulation=2)


@pytest.fixture(scope="module")
def two_features(tmp_path_factory):
    """Examples whose Transform returns an image and its mean."""
    return make_digits(tmp_path_factory.mktemp("two"), with_mean=True)


@pytest.mark.long
@pytest.mark.parametrize("named", [True, False], ids=["named", "keyed"])
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "network"])
def test_a_model_of_two_features_is_the_same_on_every_path(
    two_features, settings, tmp_path, monkeypatch, compiled, named
):
    monkeypatch.syspath_prepend(str(HERE / "user"))
    found = []
    for path in ("keras", "keras_custom_loop", *([] if compiled else ["estimator"])):
        training = Training(tmp_path / path, two_features)
        served, run = _train(training, settings, "two_inputs", path=path, params={"compiled": compiled, "named": named})
        assert len(_losses(run)) == STEPS
        answers = _answers(served)
        assert sorted(answers) == OUTPUTS
        found.append((_losses(run), answers["probabilities"]))
        assert len(_notices(run)) == compiled
    (losses, answers), *others = found
    for other, others_answers in others:
        np.testing.assert_allclose(other, losses, rtol=0, atol=CLOSE)
        np.testing.assert_allclose(others_answers, answers, rtol=0, atol=CLOSE)
