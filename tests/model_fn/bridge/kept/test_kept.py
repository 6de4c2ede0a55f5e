"""A kept training goes on as the Estimator's, to the last bit, in a process that has TensorFlow and Keras alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow.python.saved_model.loader_impl import parse_saved_model

from tests.model_fn.bridge.kept import model_fns
from tests.model_fn.bridge.kept.conftest import KERAS
from tests.stack import OTHER_PYTHON
from tfx_estimator.model_fn.bridge.kept.keeping import keep
from tfx_estimator.model_fn.bridge.kept.parts import components
from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.base.stack import stacks
from tfx_estimator.pipeline.testing.serving import serialize

pytestmark = [pytest.mark.equivalence, pytest.mark.usefixtures("without_patches")]
# By the name of the model_fn: why several replicas cannot train it.
WHOLE = {
    "normalised": "",
    "averaged": "",
    "of_text": "",
    "like_bert": "",
    "adversarial": "its model_fn computes gradients after it has applied others",
    "accumulated": "its model_fn applies gradients inside of a condition or a loop",
    "by_keras": "",
}


# Kinds that run only with the long tests.
MORE = ("adversarial", "by_keras")
USES = str(Path(__file__).with_name("uses.py"))


def _estimator(tf: Any, name: str, folder: Path, **params: Any) -> Any:
    config = tf.estimator.RunConfig(str(folder), 1, save_summary_steps=None, log_step_count_steps=None)
    return tf.estimator.Estimator(getattr(model_fns, name), config=config, params=params or None)


@pytest.fixture(scope="session")
def kept(tf: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Any, str, Any]]:
    """Trains a model_fn some steps and keeps it; returns the Estimator, the folder and the result."""
    made: dict[str, Any] = {}

    def get(name: str, **params: Any) -> tuple[Any, str, Any]:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            vocabulary = folder / "vocabulary"
            vocabulary.write_text("a\nbc\n")
            params |= {"vocabulary": str(vocabulary)} if name == "of_text" else {}
            estimator = _estimator(tf, name, folder / "model", **params)
            input_fn = model_fns.text_input if name == "of_text" else model_fns.dense_input()
            # A layer's initializer draws from Keras's own generator, which no RunConfig seeds.
            tf.keras.utils.set_random_seed(1)
            estimator.train(input_fn, steps=3)
            output = str(folder / "kept")
            receiver_fn = model_fns.receiver_fn if name == "averaged" else None
            checkpoint = estimator.latest_checkpoint()
            made[name] = estimator, output, keep(estimator, input_fn, input_fn, output, checkpoint, receiver_fn)
            vocabulary.rename(folder / "moved")
        return made[name]

    return get


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.long) if each in MORE else each for each in WHOLE]
)
def test_it_goes_on_to_the_bit(kept: Any, name: str) -> None:
    _, folder, result = kept(name)
    proof = json.loads(Path(folder, "proof.json").read_text())
    assert proof["holds"]
    assert proof["next_steps"] == {"loss": 0.0, "variable": 0.0}
    assert proof["logits"] == {"estimator": 0.0, "metrics": 0.0}
    assert result.step == 3
    assert result.uncut == WHOLE[name]
    assert result.left_out == (["the hook LoggingTensorHook"] if name == "averaged" else [])
    assert {each.name for each in Path(folder).iterdir()} == {"graph", "network.py", "proof.json"}


@pytest.mark.parametrize("legacy", KERAS)
def test_keras_goes_on_as_the_estimator(tf: Any, kept: Any, processes: Any, tmp_path: Path, legacy: str) -> None:
    estimator, folder, _ = kept("averaged")
    found = json.loads(processes(legacy).run(USES, "goes_on", folder, str(tmp_path)))
    shutil.copytree(estimator.model_dir, tmp_path / "model")
    other = _estimator(tf, "averaged", tmp_path / "model")
    for _ in range(2):
        other.train(model_fns.dense_input(), steps=8)
    assert found["variables"] == {name: other.get_variable_value(name).tolist() for name in found["variables"]}
    once = model_fns.dense_input(repeat=1)
    assert found["metrics"] == {name: float(each) for name, each in other.evaluate(once).items()}
    logits = [each["logits"].tolist() for each in other.predict(once)]
    assert found["logits"] == logits
    assert found["called"] == logits
    assert found["params"] == sum(np.size(each) for each in found["variables"].values())


def _signatures(tf: Any, folder: str) -> dict[str, Any]:
    """Returns what the signatures of a SavedModel take and return, with their methods."""
    (graph,) = parse_saved_model(folder).meta_graphs
    assert list(graph.meta_info_def.tags) == ["serve"]
    return {
        name: [
            {key: (one.dtype, str(one.tensor_shape)) for key, one in each.items()}
            for each in (signature.inputs, signature.outputs)
        ]
        + [signature.method_name]
        for name, signature in graph.signature_def.items()
        if not name.startswith("__")
    }


def test_it_exports_as_the_estimator(tf: Any, kept: Any, processes: Any, tmp_path: Path) -> None:
    estimator, folder, _ = kept("averaged")
    processes("0").run(USES, "exports", folder, str(tmp_path))
    shutil.copytree(estimator.model_dir, tmp_path / "model")
    other = _estimator(tf, "averaged", tmp_path / "model")
    other.train(model_fns.dense_input(), steps=8)
    exported = other.export_saved_model(str(tmp_path / "estimator"), model_fns.receiver_fn).decode()
    wanted = _signatures(tf, exported)
    assert sorted(wanted) == ["predict", "serving_default"]
    assert wanted["serving_default"][2] == "tensorflow/serving/classify"
    assert _signatures(tf, str(tmp_path / "kept")) == wanted
    request = tf.constant(serialize([{"x": [0.1, 0.9, 0.3, 0.4, 0.5]}]))
    for name, (takes, returns, _) in wanted.items():
        one, two = (
            tf.saved_model.load(str(each)).signatures[name](**dict.fromkeys(takes, request))
            for each in (exported, tmp_path / "kept")
        )
        for key in returns:
            np.testing.assert_array_equal(one[key], two[key])


def test_tables_and_their_files_travel_with_an_export(tf: Any, kept: Any, processes: Any, tmp_path: Path) -> None:
    _, folder, _ = kept("of_text")
    wanted = json.loads(processes("0").run(USES, "exports", folder, str(tmp_path)))
    (tmp_path / "kept").rename(tmp_path / "moved")
    signature = tf.saved_model.load(str(tmp_path / "moved")).signatures["serving_default"]

    given = dict(components(next(iter(model_fns.text_input())), "features"))
    found = signature(**{name: given[name] for name in signature.structured_input_signature[1]})
    assert found["logits"].numpy().tolist() == wanted["logits"][:8]


@pytest.mark.parametrize("legacy", KERAS)
def test_the_model_is_a_citizen_of_keras(kept: Any, processes: Any, tmp_path: Path, legacy: str) -> None:
    _, folder, _ = kept("plain")
    found = json.loads(processes(legacy).run(USES, "callbacks", folder, str(tmp_path)))
    # The best is the first epoch, after 8 steps; patience lasts for 2 more.
    assert found == {"still": True, "factor": 0.25, "best": [11, 11, 3], "restored": True, "backup": [True]}


@pytest.mark.parametrize("legacy", KERAS)
def test_replicas_train_as_one(kept: Any, processes: Any, tmp_path: Path, legacy: str) -> None:
    _, folder, result = kept("plain")
    assert not result.uncut
    found = json.loads(processes(legacy).run(USES, "replicas", folder, str(tmp_path)))
    assert found["apart"] <= 1e-5
    assert found["copies"]
    assert found["step"] == 3 + 2 * 8
    np.testing.assert_allclose(*found["losses"], rtol=1e-5)
    np.testing.assert_allclose(*found["metrics"], rtol=1e-5)


def test_averages_of_replicas_stay_equal(kept: Any, processes: Any, tmp_path: Path) -> None:
    _, folder, _ = kept("normalised")
    found = json.loads(processes("0").run(USES, "averages", folder, str(tmp_path)))
    assert [name.rpartition("/")[2] for name in found["averages"]] == ["moving_mean", "moving_variance"]
    # Were one not a number, it would not equal itself.
    assert found["copies"]
    assert np.isfinite(found["loss"]).all()


@pytest.mark.skipif(not os.environ.get(OTHER_PYTHON), reason=f"{OTHER_PYTHON} names no Python of another stack")
def test_the_other_stack_goes_on(kept: Any, processes: Any, tmp_path: Path) -> None:
    _, folder, _ = kept("plain")
    words, environment = [USES, "once", folder, str(tmp_path)], {**os.environ, stacks.KERAS: "0"}
    command = [os.environ[OTHER_PYTHON], *words]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=120).stdout
    assert printed.splitlines()[-1] == processes("0").run(*words)


def test_workers_train_as_one(kept: Any, processes: Any, tmp_path: Path) -> None:
    _, folder, _ = kept("plain")
    found = json.loads(processes("0").run(USES, "workers", folder, str(tmp_path)))["variables"]
    one = json.loads(processes("0").run(USES, "once", folder, str(tmp_path)))["variables"]
    for name, each in one.items():
        np.testing.assert_allclose(found[name], each, atol=1e-5, err_msg=name)


def test_replicas_of_a_step_that_cannot_be_cut_are_refused(kept: Any, processes: Any, tmp_path: Path) -> None:
    _, folder, _ = kept("accumulated")
    found = json.loads(processes("0").run(USES, "replicas", folder, str(tmp_path)))
    assert WHOLE["accumulated"] in found["refused"]


def test_other_shapes_and_a_factor_of_a_rate_in_python_are_refused(kept: Any, processes: Any, tmp_path: Path) -> None:
    _, folder, _ = kept("unscalable")
    shapes, factor = json.loads(processes("0").run(USES, "refused", folder, str(tmp_path)))
    assert "features_x of the batch is float32 (None, 4), and not TensorSpec(shape=(None, 5)" in shapes
    assert "cannot be multiplied by a factor" in factor


@pytest.mark.parametrize("legacy", KERAS)
@pytest.mark.parametrize("name", [pytest.param("plain", marks=pytest.mark.long), "summed"])
def test_replicas_evaluate_as_one(kept: Any, processes: Any, tmp_path: Path, name: str, legacy: str) -> None:
    _, folder, _ = kept(name)
    found = json.loads(processes(legacy).run(USES, "evaluates", folder, str(tmp_path)))
    # The last batch has one example: of two replicas, one has none.
    assert np.isfinite(found["metrics"][0]["loss"])
    assert found["metrics"][0] == found["metrics"][1] == found["validated"]
    np.testing.assert_array_equal(*found["predicted"])
    if name == "summed":
        for variable, (whole, *halves) in found["moved"].items():
            # Each half is normalised alone; gradients are added up, and averages get the mean.
            one = np.mean if "moving" in variable or variable == "global_step" else np.sum
            np.testing.assert_allclose(whole, one(halves, axis=0), atol=1e-6, err_msg=variable)


@pytest.mark.parametrize("legacy", KERAS)
def test_each_way_to_predict_and_evaluate_has_the_weights_of_now(
    kept: Any, processes: Any, tmp_path: Path, legacy: str
) -> None:
    _, folder, _ = kept("plain")
    found = json.loads(processes(legacy).run(USES, "current", folder, str(tmp_path)))
    for answers, (batch, whole) in found.values():
        for each in answers:
            np.testing.assert_allclose(each, answers[0], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(batch, whole, rtol=1e-6)
    assert not np.any(found["after"][0])
    assert np.any(found["before"][0])
    # Of three classes, none is likelier.
    assert np.log(3) == pytest.approx(found["after"][1][0][0])


@pytest.mark.parametrize("legacy", KERAS)
def test_files_are_of_their_own_training_and_whole(kept: Any, processes: Any, tmp_path: Path, legacy: str) -> None:
    _, folder, _ = kept("plain")
    _, other, _ = kept("summed")
    found = json.loads(processes(legacy).run(USES, "files", folder, str(tmp_path), other))
    assert found["own"]
    assert found["equal"] == [True, True]
    assert ["would have no weights" in each for each in found["refused"]] == [True] * 3 + [False] * 2
    assert ["sample_weight" in each for each in found["refused"]] == [False] * 3 + [True] * 2
    assert not (tmp_path / "one.h5").exists()


def test_metrics_and_predictions_in_python_are_left_out(kept: Any) -> None:
    _, _, result = kept("in_python", where="metric")
    assert result.left_out == ["the metric in_python", "the prediction seen"]
    assert result.holds


def test_reference_variables_by_default_are_kept(tf: Any, kept: Any) -> None:
    tf.compat.v1.disable_resource_variables()
    try:
        _, _, result = kept("by_references", use_resource=None)
    finally:
        tf.compat.v1.enable_resource_variables()
    # The weight, its two slots, two powers, and the step.
    assert result.tensors == {"variable": 6}
    assert result.next_steps == {"loss": 0.0, "variable": 0.0}
    # It has a mode for training alone.
    modes = [f"mode {mode}, in which the model_fn fails by {mode}" for mode in ("eval", "infer")]
    assert (result.left_out, result.examples) == (modes, 0)


def _cut_off(folder: Path) -> None:
    (data,) = folder.glob("model.ckpt-1.data*")
    data.write_bytes(data.read_bytes()[:40])


REFUSED = {
    "in_python": ({"where": "loss"}, None, "PyFunc"),
    "by_references": ({"use_resource": False}, None, "weight of the model_fn is a reference variable"),
    "plain": ({}, "other", "does not match the Estimator's code"),
    "averaged": ({}, "cut", "is not of this model_fn, or damaged"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_kept_is_refused_in_a_sentence(tf: Any, tmp_path: Path, name: str) -> None:
    params, damage, sentence = REFUSED[name]
    input_fn = model_fns.dense_input()
    estimator = _estimator(tf, name, tmp_path / "model", **params)
    (_estimator(tf, "unscalable", tmp_path / "model") if damage == "other" else estimator).train(input_fn, steps=1)
    if damage == "cut":
        _cut_off(tmp_path / "model")
    with pytest.raises(UserCodeError, match=sentence) as raised:
        keep(estimator, input_fn, input_fn, str(tmp_path / "kept"), estimator.latest_checkpoint())
    assert damage == "other" or "\n" not in raised.value.what
    assert [each.name for each in tmp_path.iterdir() if each.name != "model"] == []
