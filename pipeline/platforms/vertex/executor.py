"""The executor of a Trainer that trains as a custom job: creates the job, follows it, and copies its results."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Iterator
from typing import Any, Optional

from tfx import types
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils, standard_component_specs

from tfx_estimator.components.execution import Artifacts
from tfx_estimator.components.trainer.jobs import logs_folder
from tfx_estimator.components.trainer.settings import HOME_KEY, Settings
from tfx_estimator.components.trainer.supervisor.outcome import Restart
from tfx_estimator.pipeline.base.ending import signals
from tfx_estimator.pipeline.base.errors import NotStartedError, TfxEstimatorError, TrainingError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.platforms.follow import AGAIN, FOLLOW_SECONDS, JobStatus, follow, log_to, with_retries
from tfx_estimator.pipeline.platforms.vertex import call
from tfx_estimator.pipeline.platforms.vertex.custom_job import PLAN_KEY, Plan, step_of
from tfx_estimator.pipeline.platforms.vertex.custom_jobs import (
    CANCELLING,
    FAILED,
    SUCCEEDED,
    LocalService,
    Service,
    VertexService,
    is_rehearsed,
)

_FOLDER = "custom_job"
_POLL_SECONDS, _REHEARSED_POLL_SECONDS = 20.0, 0.5

logger = get_logger("trainer")
_notify = log_to(logger)


class Executor(base_executor.BaseExecutor):
    """Trains in the replicas of a custom job, and resumes in another job if one lost a replica.

    A retried step follows the job that its earlier try has created.
    """

    def Do(self, input_dict: Artifacts, output_dict: Artifacts, exec_properties: dict[str, Any]) -> None:
        """Trains.

        Args:
            input_dict: As of the Trainer's own executor.
            exec_properties: As of the Trainer's own executor, and the job's plan.

        Raises:
            TfxEstimatorError: A replica's own error.
            TrainingError: The job failed more often than max_restarts, or before a replica started; it was cancelled
                or expired; or its chief wrote no results.
        """
        plan = Plan.from_json(exec_properties[PLAN_KEY])
        rest = {key: value for key, value in exec_properties.items() if key != PLAN_KEY}
        model_run = artifact_utils.get_single_instance(output_dict[standard_component_specs.MODEL_RUN_KEY])
        folder = os.path.join(os.path.dirname(model_run.uri), _FOLDER)
        restarts: list[Restart] = []
        allowed = Settings.of(rest).distribution.max_restarts
        with signals.handled(), _service(plan, folder) as service:
            while True:
                name, last = _train(service, plan, folder, (input_dict, output_dict, rest))
                if last.state == SUCCEEDED:
                    break
                error = _failed(name, last, folder)
                if not error.retryable or len(restarts) >= allowed:
                    raise error
                cause = (last.message.splitlines() or ["a replica failed"])[0]
                restarts.append(Restart(cause, "another custom job resumed from there", -1))
                logger.warning(f"the custom job {name} failed: {cause}; another one resumes from its last checkpoint")
        if not call.take_measured(folder, output_dict):
            raise TrainingError(
                f"the custom job {name} succeeded, and its chief wrote nothing to {folder}",
                expected="the chief's results there",
                todo="see whether the image has this version of tfx-estimator",
            )
        if restarts:
            _count(model_run, restarts)


def _train(
    service: Service, plan: Plan, folder: str, args: tuple[Artifacts, Artifacts, dict[str, Any]]
) -> tuple[str, JobStatus]:
    """Follows the job of an earlier try, or a new one, to its end; returns its name and last status."""
    name = None
    try:
        name = _earlier(service, folder)
        if name is None:
            call.write_call(folder, *args)
            home = str(args[-1].get(HOME_KEY) or "")
            job = plan.to_job(folder, home)
            # Finds a job whose creation succeeded although the answer was lost.
            name = with_retries(lambda: service.find(step_of(folder)) or service.create(job), _notify, FOLLOW_SECONDS)
            call.write_job(folder, name)
            logger.info(f"created the custom job {name}: {_pools(plan)}")
        return name, _follow(service, name)
    except signals.SignalledError:
        _cancel(service, name, step_of(folder))
        raise


def _failed(name: str, last: JobStatus, folder: str) -> TfxEstimatorError:
    """Returns a failed job's error: a replica's own, or the service's message."""
    failures = call.read_failures(folder) if last.state == FAILED else None
    if failures:
        failures[0].todo = f"{failures[0].todo or 'fix it'}; it is the error of a replica of the custom job {name}"
        return failures[0]
    # No replica has started, for example because a quota is exhausted: a retry does not help.
    never = last.state == FAILED and failures is None
    error = (NotStartedError if never else TrainingError)(
        f"the custom job {name} ended with {last.state}: {last.message or 'the service gives no reason'}",
        expected=SUCCEEDED,
        todo="see the logs of its replicas; run it again to resume from the last checkpoint",
    )
    error.retryable = failures is not None
    return error


def _count(model_run: types.Artifact, restarts: list[Restart]) -> None:
    """Adds the restarts to the properties that the last job's chief measured."""
    step = int(model_run.get_float_custom_property("first_step"))
    added = [dataclasses.asdict(dataclasses.replace(each, step=step)) for each in restarts]
    history = json.loads(model_run.get_string_custom_property("history") or "[]")
    model_run.set_string_custom_property("history", json.dumps([*added, *history]))
    model_run.set_float_custom_property("restarts", len(restarts) + model_run.get_float_custom_property("restarts"))


@contextlib.contextmanager
def _service(plan: Plan, folder: str) -> Iterator[Service]:
    if not is_rehearsed():
        yield VertexService.of(plan.project, plan.region)
        return
    with logs_folder(folder) as logs, LocalService(logs, isolated=not is_address(folder)) as service:
        yield service


def _earlier(service: Service, folder: str) -> Optional[str]:
    """Returns the job of an earlier try, recorded or not, if it is running or has succeeded."""
    recorded = call.read_job(folder)
    for name in (recorded, with_retries(lambda: service.find(step_of(folder)), _notify, FOLLOW_SECONDS)):
        if name is None or name.startswith("local/"):
            continue  # a rehearsal's, whose processes have ended with the earlier try
        status = with_retries(functools.partial(service.status, name), _notify, FOLLOW_SECONDS, again=AGAIN)
        if status.state == CANCELLING:
            status = _follow(service, name)
        if status.state == SUCCEEDED or not status.ended:
            return name
    return None


def _cancel(service: Service, name: Optional[str], step: str) -> None:
    """Cancels the job, even if its name is unknown yet. Errors are logged, to keep the signal that caused it."""
    try:
        if name := name or service.find(step):
            service.cancel(name)
    except Exception as error:  # the client raises errors of many kinds
        logger.warning(f"the custom job {name or 'of this step'} may still run: {error}")


def _follow(service: Service, name: str) -> JobStatus:
    return follow(service, name, _notify, _REHEARSED_POLL_SECONDS if is_rehearsed() else _POLL_SECONDS)


def _pools(plan: Plan) -> str:
    return ", ".join(
        f"{pool['replica_count']} {role} ({pool['machine_spec']['machine_type']})" for role, pool in plan.pools.items()
    )
