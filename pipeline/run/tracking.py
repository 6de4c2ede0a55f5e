"""Logs an ended run to MLflow, in a separate process with a deadline; its failure does not fail the run."""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import json
import logging
import math
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError
from tfx_estimator.pipeline.base.files import write_whole
from tfx_estimator.pipeline.base.installed import install_command
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.yaml_text import inline
from tfx_estimator.pipeline.report.source import CARD, DECLARATION, REPORT, SUMMARY, Run
from tfx_estimator.pipeline.run.summary import FAILED, INTERRUPTED, Summary
from tfx_estimator.pipeline.run.table import COLUMN
from tfx_estimator.pipeline.run.view import View
from tfx_estimator.pipeline.user_source import loader

_PROGRAM = "from tfx_estimator.pipeline.run import tracking; tracking.main(*sys.argv[1:])"
# A responsive server takes a second or two.
SECONDS = 60.0
# The child process's share; in the rest it reports its failure.
_OWN_SHARE = 5 / 6
# By default the client waits 2 minutes for a response, and retries seven times.
_PATIENCE = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "15", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}
_SQLITE = "sqlite:///"
_FILES = (REPORT, CARD, SUMMARY, DECLARATION)
# MLflow's limits: metrics and parameters in a batch, and the length of a parameter.
_METRICS, _PARAMETERS, _LENGTH = 1000, 100, 500
_FOREIGN = re.compile(r"[^\w./ -]", re.ASCII)


def check_client(declaration: Declaration) -> None:
    """Raises DeclarationError if MLflow is declared but not installed."""
    if declaration.tracking.mlflow and importlib.util.find_spec("mlflow") is None:
        raise DeclarationError(
            "tracking.mlflow: MLflow is not installed here",
            expected="its client, which logs the run at its end",
            todo=f"{install_command('mlflow')}, or --set tracking.mlflow=null",
        )


@contextlib.contextmanager
def tracked(uri: str | None, results: Summary, view: View, logs: str, seconds: float = SECONDS) -> Iterator[None]:
    """Logs the run when the context exits, unless it was interrupted."""
    try:
        yield
    finally:
        if uri and results.state != INTERRUPTED:
            view.finish(
                *(results, logs, "tracking", "writing to MLflow", "the run is not in MLflow"),
                lambda: f"{'mlflow':<{COLUMN}} {_write(uri, logs, seconds)}",
            )


def _write(uri: str, logs: str, seconds: float) -> str:
    """Logs an ended run in a child process; returns its place in MLflow."""
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") as folder:
        result_file = os.path.join(folder, "result")
        command = [*loader.fresh_python(_PROGRAM), uri, logs, result_file, str(seconds * _OWN_SHARE)]
        environment = {**_PATIENCE, **os.environ, "PYTHONPATH": loader.python_path()}
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, env=environment, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            raise PipelineError(f"it took longer than {seconds:g} s") from None
        result = json.loads(Path(result_file).read_text()) if os.path.exists(result_file) else {}
    if "where" not in result:
        raise PipelineError(result.get("error") or f"its client ended with exit code {done.returncode}")
    return result["where"]


class _LateError(BaseException):
    """The deadline has passed. Not an Exception, because clients catch those and retry."""


def main(uri: str, logs: str, result_file: str, seconds: str) -> None:
    """Entry point of the child process: logs the run, and writes its place or the error to a file."""

    def late(*_: object) -> NoReturn:
        raise _LateError(f"it took longer than {float(seconds):g} s")

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, float(seconds))
    # MLflow refuses a folder as a tracking URI without this.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    try:
        result = {"where": write(uri, logs)}
    except (Exception, _LateError) as error:
        logging.getLogger(__name__).exception("the run is not in MLflow")
        result = {"error": _message(error)}
    signal.setitimer(signal.ITIMER_REAL, 0)
    write_whole(result_file, json.dumps(result))


def write(uri: str, logs: str) -> str:
    """Logs a run with MLflow's client; returns the experiment's name and the run's ID."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    from tfx_estimator.pipeline.report.source import read_run

    run = read_run(logs)
    summary = run.summary
    client = MlflowClient(tracking_uri=uri if is_address(uri) or ":" in uri else Path(uri).as_uri())
    begun = int(datetime.datetime.fromisoformat(summary["started"]).timestamp() * 1000)
    ended = begun + int(summary["seconds"] * 1000)
    created = client.create_run(_experiment(client, uri, run.name), begun, run_name=run.time, tags=_tags(summary))
    made = created.info.run_id
    try:
        parameters = [Param(key, value) for key, value in parameters_of(run.values).items()]
        for some in _batches(parameters, _PARAMETERS):
            client.log_batch(made, params=some)
        metrics = [
            Metric(name, value, ended if time is None else int(time * 1000), step)
            for name, value, step, time in metrics_of(summary, _curves(run))
        ]
        for some in _batches(metrics, _METRICS):
            client.log_batch(made, metrics=some)
        for name in _FILES:
            if os.path.exists(path := os.path.join(logs, name)):
                client.log_artifact(made, path)
        client.set_terminated(made, "FAILED" if summary["state"] == FAILED else "FINISHED", ended)
    except (Exception, _LateError) as error:
        # Otherwise MLflow shows it as running forever. The server may be gone.
        with contextlib.suppress(Exception):
            client.set_terminated(made, "FAILED", ended)
            client.set_tag(made, "not_written", _message(error))
        raise
    return f"experiment {run.name}, run {made}"


def _message(error: BaseException) -> str:
    kind = "" if isinstance(error, _LateError) else f"{type(error).__name__}: "
    return kind + one_line(str(error))[:_LENGTH]


def _experiment(client: Any, uri: str, name: str) -> str:
    if found := client.get_experiment_by_name(name):
        return found.experiment_id
    place = None
    if uri.startswith(_SQLITE):
        # Next to the database; MLflow's default is the current folder of the process that creates the experiment.
        folder = os.path.dirname(os.path.abspath(uri.removeprefix(_SQLITE)))
        place = Path(folder, "mlruns", name).as_uri()
    return client.create_experiment(name, place)


def _tags(summary: Mapping[str, Any]) -> dict[str, str]:
    """Returns the results that are neither numbers nor declared."""
    tags = {name: summary.get(name) for name in ("source", "state", "dataset", "blessed", "pushed", "model_run")}
    versions = summary.get("versions") or {}
    tags |= {"stack": versions.get("stack"), "tfx-estimator": versions.get("tfx-estimator")}
    tags["error"] = (summary.get("error") or {}).get("what")
    return {name: str(value)[:_LENGTH] for name, value in tags.items() if value not in (None, "")}


def parameters_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Returns the declared values and defaults, without the pipeline's name and the tracking section."""
    return {
        _FOREIGN.sub("_", key): inline(value)[:_LENGTH]
        for key, value in values.items()
        if value is not None and not key.startswith(("tracking.", "name"))
    }


def metrics_of(
    summary: Mapping[str, Any], curves: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, float, int, float | None]]:
    """Yields name, value, step and time of a run's results and of its curves' points; time None is the run's end."""
    steps = int((summary.get("training") or {}).get("last_step") or 0)
    values = {name: summary.get(name) for name in ("accuracy", "loss", "evaluated")}
    values |= summary.get("metrics") or {}
    values |= {"run/seconds": summary.get("seconds")}
    for group, of in (("training", summary.get("training")), ("examples", summary.get("examples"))):
        values |= {f"{group}/{name}": value for name, value in (of or {}).items()}
    values |= {f"component_seconds/{each['node']}": each["seconds"] for each in summary.get("components") or ()}
    for name, value in values.items():
        if isinstance(value, (int, float)) and math.isfinite(value):
            yield _FOREIGN.sub("_", name), float(value), steps, None
    for metric, series in curves.items():
        for who, curve in series.items():
            # In a file store a metric cannot also be a folder of other metrics.
            name = _FOREIGN.sub("_", f"{who.replace('/', '_')}/{metric.replace('/', '_')}")
            for step, value, time in zip(curve.steps, curve.values, curve.times):
                if math.isfinite(value):
                    yield name, float(value), int(step), time


def _curves(run: Run) -> Mapping[str, Mapping[str, Any]]:
    """Returns the curves of TensorBoard's events; none if the run did not train."""
    from tfx_estimator.pipeline.report.page import Missing, attempt
    from tfx_estimator.pipeline.report.report import read_run_outputs
    from tfx_estimator.pipeline.report.training import find_training, read_training

    training = attempt(read_training, attempt(find_training, run, attempt(read_run_outputs, run)))
    return {} if isinstance(training, Missing) else training.curves


def _batches(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
