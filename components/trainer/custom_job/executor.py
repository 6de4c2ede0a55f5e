"""The executor of a Trainer that trains as a custom job: creates the job, follows it, takes over what it measured."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Optional, TypeVar

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils, standard_component_specs

from tfx_estimator.components.artifacts import Artifacts
from tfx_estimator.components.trainer.custom_job import call
from tfx_estimator.components.trainer.custom_job.plan import PLAN_KEY, Plan, step_of
from tfx_estimator.components.trainer.custom_job.processes import LocalService
from tfx_estimator.components.trainer.custom_job.service import (
    CANCELLING,
    ENDED,
    FAILED,
    SUCCEEDED,
    Service,
    Status,
    VertexService,
    is_permanent,
    is_rehearsed,
    of_client,
)
from tfx_estimator.components.trainer.jobs import logs_folder
from tfx_estimator.components.trainer.settings import HOME_KEY, Settings
from tfx_estimator.components.trainer.supervisor.outcome import Restart
from tfx_estimator.pipeline.base.ending import signals
from tfx_estimator.pipeline.base.errors import TfxEstimatorError, TrainingError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.paths import is_address

_FOLDER = "custom_job"
_POLL_SECONDS, _REHEARSED_POLL_SECONDS = 20.0, 0.5
# How long the service may not answer.
_PATIENCE_SECONDS = 900.0

_Told = TypeVar("_Told")
logger = get_logger("trainer")


class Executor(base_executor.BaseExecutor):
    """Trains in the replicas of a custom job; another one follows on one that lost a replica.

    A step that is tried again follows the job that it has created.
    """

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """Trains.

        Args:
            input_dict: As of the Trainer's own executor.
            exec_properties: Likewise, and the plan of the job.

        Raises:
            TfxEstimatorError: A replica's own error.
            TrainingError: The job failed more often than it may be started again, or without a replica that has begun;
                it was cancelled or expired; or its chief measured nothing.
        """
        plan = Plan.from_json(exec_properties[PLAN_KEY])
        rest = {key: value for key, value in exec_properties.items() if key != PLAN_KEY}
        model_run = artifact_utils.get_single_instance(output_dict[standard_component_specs.MODEL_RUN_KEY])
        folder = os.path.join(os.path.dirname(model_run.uri), _FOLDER)
        restarts: list[Restart] = []
        allowed = Settings.of(rest).distribution.max_restarts
        with signals.handled(), _service(plan, folder) as service:
            while True:
                name, status = _train(service, plan, folder, (input_dict, output_dict, rest))
                if status.state == SUCCEEDED:
                    break
                error = _failed(name, status, folder)
                if not error.retryable or len(restarts) >= allowed:
                    raise error
                cause = (status.message.splitlines() or ["a replica failed"])[0]
                restarts.append(Restart(cause, "another custom job went on from there", -1))
                logger.warning(f"the custom job {name} failed: {cause}; another one goes on from its last checkpoint")
        if not call.take_measured(folder, output_dict):
            raise TrainingError(
                f"the custom job {name} succeeded, and its chief wrote nothing to {folder}",
                expected="the chief's results there",
                todo="see whether the image has this version of tfx-estimator",
            )
        if restarts:
            _count(model_run, restarts)


def _train(
    service: Service, plan: Plan, folder: str, told: tuple[Artifacts, Artifacts, dict[str, Any]]
) -> tuple[str, Status]:
    """Follows the job of an earlier try, or a new one, to its end; returns its name, and how it ended."""
    name = None
    try:
        name = _earlier(service, folder)
        if name is None:
            call.write_call(folder, *told)
            home = str(told[-1].get(HOME_KEY) or "")
            name = _create(service, plan.to_job(folder, home), step_of(folder))
            call.write_job(folder, name)
            logger.info(f"created the custom job {name}: {_pools(plan)}")
        return name, _follow(service, name)
    except signals.SignalledError:
        _cancel(service, name, step_of(folder))
        raise


def _failed(name: str, status: Status, folder: str) -> TfxEstimatorError:
    """Returns what a job failed by: a replica's own error, or the service's words."""
    failures = call.read_failures(folder) if status.state == FAILED else None
    if failures:
        failures[0].todo = f"{failures[0].todo or 'mend that'}; it is of a replica of the custom job {name}"
        return failures[0]
    error = TrainingError(
        f"the custom job {name} ended with {status.state}: {status.message or 'the service says no more'}",
        expected=SUCCEEDED,
        todo="see the logs of its replicas; the same training goes on from its last checkpoint",
    )
    # None means that no replica has begun, for want of a quota for example: a retry does not help.
    error.retryable = failures is not None
    return error


def _count(model_run: types.Artifact, restarts: list[Restart]) -> None:
    """Adds the restarts to what the last job's chief measured."""
    step = int(model_run.get_float_custom_property("first_step"))
    told = [dataclasses.asdict(dataclasses.replace(each, step=step)) for each in restarts]
    history = json.loads(model_run.get_string_custom_property("history") or "[]")
    model_run.set_string_custom_property("history", json.dumps([*told, *history]))
    model_run.set_float_custom_property("restarts", len(restarts) + model_run.get_float_custom_property("restarts"))


@contextlib.contextmanager
def _service(plan: Plan, folder: str) -> Iterator[Service]:
    if not is_rehearsed():
        yield VertexService.of(plan.project, plan.region)
        return
    with logs_folder(folder) as logs, LocalService(logs, secluded=not is_address(folder)) as service:
        yield service


def _earlier(service: Service, folder: str) -> Optional[str]:
    """Returns the job of an earlier try, if it goes on, or is done: the one noted, or one that nobody could note."""
    noted = call.read_job(folder)
    for name in (noted, _patiently(lambda: service.find(step_of(folder)))):
        if name is None or name.startswith("local/"):
            continue  # a job on this machine: its processes have ended with it
        state = _patiently(functools.partial(service.status, name)).state
        if state == CANCELLING:
            state = _follow(service, name).state
        if state == SUCCEEDED or state not in ENDED:
            return name
    return None


def _create(service: Service, job: dict[str, Any], step: str) -> str:
    """Creates a job, or finds it, where the service has created it and its answer was lost."""
    return _patiently(lambda: service.find(step) or service.create(job))


def _cancel(service: Service, name: Optional[str], step: str) -> None:
    """Cancels the job, also one whose name has not come yet. What goes wrong matters less than why it is cancelled."""
    try:
        if name := name or service.find(step):
            service.cancel(name)
    except Exception as error:  # the client raises errors of many kinds
        logger.warning(f"the custom job {name or 'of this step'} may go on: {error}")


def _follow(service: Service, name: str) -> Status:
    """Waits for a job's end."""
    before = ""
    while True:
        status = _patiently(lambda: service.status(name))
        if status.state != before:
            logger.info(f"the custom job {name}: {status.state}")
        before = status.state
        if status.state in ENDED:
            return status
        _wait()


def _patiently(ask: Callable[[], _Told]) -> _Told:
    """Asks the service; that it does not answer for a while is borne."""
    began = time.monotonic()
    while True:
        try:
            return ask()
        except of_client() as error:
            if is_permanent(error):
                raise _refused(error) from error
            if time.monotonic() - began > _PATIENCE_SECONDS:
                raise TrainingError(
                    f"Vertex AI has not done for {_PATIENCE_SECONDS:g} s what it was asked: {error}",
                    expected="an answer, and room for the job in the project's quotas",
                    todo="see the service's status and the quotas, then run the step again: a job that goes on by then "
                    "is followed",
                ) from error
            logger.warning(f"the service does not answer: {error}")
        _wait()


def _refused(error: Exception) -> TrainingError:
    return TrainingError(
        f"Vertex AI refuses: {error}",
        expected="an account that may create, list, get and cancel custom jobs, and a job that fits the project",
        todo="see deploy.service_account, deploy.project, deploy.region and deploy.vertex",
    )


def _wait() -> None:
    time.sleep(_REHEARSED_POLL_SECONDS if is_rehearsed() else _POLL_SECONDS)


def _pools(plan: Plan) -> str:
    return ", ".join(f"{pool.count} {pool.role} ({pool.machine_type})" for pool in plan.pools)
