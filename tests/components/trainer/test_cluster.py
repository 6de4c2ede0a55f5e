"""Clusters of real processes."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from tfx_estimator.components.trainer.cluster.private_network import NoPrivateNetworkError, PrivateNetwork

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(200)]

MWMS = {"strategy": "multi_worker_mirrored"}

RUN_FN = """
import json, os
import tensorflow as tf
from tensorflow.python.framework import test_util

def run_fn(fn_args):
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    allocator = os.environ["TF_GPU_ALLOCATOR"]
    print(f"this run_fn finds {threads} threads, oneDNN {test_util.IsMklEnabled()}, {allocator}")
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    tf.io.gfile.makedirs(fn_args.serving_model_dir)
    module = tf.Module()
    # Not a variable, since each task's would be the chief's.
    serve = tf.function(lambda: {"task": tf.constant(task["type"])}, input_signature=[])
    module.serve = serve
    tf.saved_model.save(module, fn_args.serving_model_dir, signatures={"serving_default": serve})
"""


def test_workers_evaluate_while_they_train_and_only_the_evaluator_exports(fresh_tasks, training, settings):
    runtime = {"threads": {"inter_op": 3}, "onednn": False, "gpu": {"thread_mode": "gpu_private"}}
    model, model_run = training.run(settings({**runtime, "distribution": {"train": MWMS, "evaluator": True}}))
    folder = Path(model_run.uri)
    # For the private network see cluster/test_private_network.py.
    with contextlib.suppress(NoPrivateNetworkError), PrivateNetwork():
        assert all(json.loads(spec.read_text())["network"] for spec in (folder / "logs").glob("*.task.json"))
    assert model_run.get_float_custom_property("last_step") == 60
    assert model_run.get_float_custom_property("eval_accuracy") > 0.9
    assert (model / "Format-Serving" / "saved_model.pb").exists()
    assert len(list((folder / "export" / "serving").iterdir())) == 1
    assert not list(folder.glob("tmp_worker_*"))
    tasks = {path.name.split(".")[0] for path in (folder / "logs").glob("*.log")}
    assert tasks == {"chief-0", "worker-0", "evaluator-0"}
    for log in (folder / "logs").glob("*.log"):
        lines = [line for line in log.read_text().splitlines() if line.startswith("runtime: ")]
        assert lines[:2] == ["runtime: inter-op threads: 3", "runtime: oneDNN: off"]
        assert lines[2].startswith("runtime: GPUs: ")


def test_a_run_fn_runs_in_each_task_and_the_chiefs_model_is_published(fresh_tasks, training, settings, tmp_path):
    import tensorflow as tf

    module_file = tmp_path / "own_module.py"
    module_file.write_text(RUN_FN)
    runtime = {"threads": {"intra_op": 2}, "onednn": False, "gpu": {"allocator": "cuda_malloc_async"}}
    distribution = {"train": MWMS}
    declared = settings({**runtime, "module_file": str(module_file), "distribution": distribution})
    model, model_run = training.run(declared, module_file=str(module_file))
    logs = list((Path(model_run.uri) / "logs").glob("*.log"))
    assert len(logs) == 2
    assert all("this run_fn finds 2 threads, oneDNN False, cuda_malloc_async\n" in log.read_text() for log in logs)
    served = tf.saved_model.load(str(model / "Format-Serving")).signatures["serving_default"]()
    assert served["task"].numpy() == b"chief"
    assert not list(Path(model_run.uri).glob("tmp_worker_*"))


# As in TFX's examples: checkpoints in serving_model_dir; and the data end before the steps do.
SHORT = """
import tensorflow as tf

def trainer_fn(fn_args, schema):
    def input_fn():
        values = tf.constant([[0.0], [1.0], [2.0], [3.0]])
        data = tf.data.Dataset.from_tensor_slices((values, tf.constant([0, 0, 1, 1])))
        return data.repeat(45).map(lambda x, y: ({"x": x}, y)).batch(4)
    config = tf.estimator.RunConfig(fn_args.serving_model_dir, save_checkpoints_steps=20, save_summary_steps=None)
    column = tf.feature_column.numeric_column("x")
    estimator = tf.estimator.LinearClassifier([column], config=config)
    receiver = tf.estimator.export.build_raw_serving_input_receiver_fn({"x": tf.constant([[0.0]])})
    return {
        "estimator": estimator,
        "train_spec": tf.estimator.TrainSpec(input_fn, max_steps=1000),
        "eval_spec": tf.estimator.EvalSpec(
            input_fn, steps=None, exporters=[tf.estimator.FinalExporter("own", receiver)]),
    }
"""


@pytest.mark.timeout(240)
@pytest.mark.long
@pytest.mark.parametrize("evaluator", [False, True])
def test_data_that_end_early_end_the_training_of_each_task(training, tmp_path, evaluator):
    from tfx_estimator.components.trainer.settings import Settings

    module_file = tmp_path / "short_module.py"
    module_file.write_text(SHORT)
    runtime = {"threads": {"inter_op": 3}, "profile": {"start_step": 10, "steps": 5}}
    settings = Settings(arguments={"distribution": {"train": MWMS, "evaluator": evaluator}, **runtime})
    model, model_run = training.run(settings, module_file=str(module_file))
    number = model_run.get_float_custom_property
    assert (number("last_step"), number("restarts")) == (45, 0)
    assert (model / "Format-Serving" / "saved_model.pb").exists()
    checkpoints = Path(model_run.uri) / "Format-Serving"
    assert {path.stem for path in checkpoints.glob("model.ckpt-*.index")} == {
        f"model.ckpt-{s}" for s in (0, 20, 40, 45)
    }
    assert not list(Path(model_run.uri).rglob("tmp_worker_*"))
    for task in ("chief-0", "worker-0"):
        (log,) = (Path(model_run.uri) / "logs").glob(f"{task}.*.log")
        assert "runtime: inter-op threads: 3\n" in log.read_text()
        assert f"profile of {task}: 5 steps in " in (Path(model_run.uri) / "profile" / task / "summary.txt").read_text()
