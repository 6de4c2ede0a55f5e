"""Code that leaves threads and processes running: its model is published, and nothing is trained twice."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tfx_estimator.components.trainer.job import Job, TaskContext
from tfx_estimator.components.trainer.protocol.events import Event, ProgressReader, ProgressWriter
from tfx_estimator.components.trainer.protocol.task_spec import CHIEF, DRY_RUN, WORKER, TaskSpec
from tfx_estimator.components.trainer.settings import ESTIMATOR, KERAS, Settings
from tfx_estimator.components.trainer.settings import RUN_FN as RUN_FN_PATH
from tfx_estimator.components.trainer.task import start

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

RUN_FN = """
import multiprocessing, threading, time
import tensorflow as tf

def run_fn(fn_args):
    threading.Thread(target=time.sleep, args=(600,), name="sender").start()
    reader = multiprocessing.Process(target=time.sleep, args=(600,), name="reader")
    reader.start()
    with open({pid!r}, "a") as file:
        print(reader.pid, file=file)
    module = tf.Module()
    module.serve = tf.function(lambda: {{"one": tf.constant(1)}}, input_signature=[])
    tf.saved_model.save(module, fn_args.serving_model_dir, signatures={{"serving_default": module.serve}})
"""
# Shorter than the grace period of a task that does not end.
SETTINGS = Settings(stall_timeout=10.0)


@pytest.mark.long
def test_a_run_fn_that_leaves_a_thread_and_a_process(fresh_tasks, training, tmp_path):
    module, pid = tmp_path / "own_module.py", tmp_path / "pid"
    module.write_text(RUN_FN.format(pid=str(pid)))
    model, model_run = training.run(SETTINGS, module_file=str(module))
    assert (model / "Format-Serving" / "saved_model.pb").exists()
    assert model_run.get_float_custom_property("restarts") == 0
    # It was started once, and is gone.
    (reader,) = pid.read_text().split()
    assert not psutil.pid_exists(int(reader))
    (log,) = (Path(model_run.uri) / "logs").glob("chief-0.*.log")
    notice = "the work of this process is done; not waited for after 5 s: the thread 'sender', the process 'reader'\n"
    assert notice in log.read_text()
    # The run shows it too, with the training's other notices.
    (progress,) = (Path(model_run.uri) / "logs").glob("chief-0.*.progress.jsonl")
    (notice,) = [each["text"] for each in ProgressReader(str(progress)).read() if each["event"] is Event.NOTICED]
    assert notice.startswith("the work of chief-0 is done; not waited for after 5 s: the thread 'sender'")


@pytest.mark.parametrize(
    ("path", "kind", "seconds"),
    [(RUN_FN_PATH, CHIEF, 300.0), (RUN_FN_PATH, DRY_RUN, 30.0), (ESTIMATOR, CHIEF, 30.0), (KERAS, WORKER, 30.0)],
)
def test_leftovers_of_a_run_fn_have_a_longer_grace_period(tmp_path, path, kind, seconds):
    settings = Settings(stall_timeout=600.0)
    job = Job("{}", "{}", {}, str(tmp_path), settings, path)
    context = TaskContext(job, TaskSpec(kind, 0, 1), ProgressWriter(str(tmp_path / "progress")))
    assert start._seconds_to_exit(context) == seconds
