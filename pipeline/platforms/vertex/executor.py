"""The executor of a Trainer that trains as a custom job: creates the job, follows it, takes over what it measured."""

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
from tfx_estimator.pipeline.base.errors import TfxEstimatorError, TrainingError
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.platforms.follow import PATIENCE_SECONDS, Look, follow, patiently, saying
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
_say = saying(logger)


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
                name, last = _train(service, plan, folder, (input_dict, output_dict, rest))
                if last.state == SUCCEEDED:
                    break
                error = _failed(name, last, folder)
                if not error.retryable or len(restarts) >= allowed:
                    raise error
                cause = (last.message.splitlines() or ["a replica failed"])[0]
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
) -> tuple[str, Look]:
    """Follows the job of an earlier try, or a new one, to its end; returns its name, and how it ended."""
    name = None
    try:
        name = _earlier(service, folder)
        if name is None:
            call.write_call(folder, *told)
            home = str(told[-1].get(HOME_KEY) or "")
            job = plan.to_job(folder, home)
            # Found where the service has created it, and its answer was lost.
            name = patiently(lambda: service.find(step_of(folder)) or service.create(job), _say, PATIENCE_SECONDS)
            call.write_job(folder, name)
            logger.info(f"created the custom job {name}: {_pools(plan)}")
        return name, _follow(service, name)
    except signals.SignalledError:
        _cancel(service, name, step_of(folder))
        raise


def _failed(name: str, last: Look, folder: str) -> TfxEstimatorError:
    """Returns what a job failed by: a replica's own error, or the service's words."""
    failures = call.read_failures(folder) if last.state == FAILED else None
    if failures:
        failures[0].todo = f"{failures[0].todo or 'mend that'}; it is of a replica of the custom job {name}"
        return failures[0]
    error = TrainingError(
        f"the custom job {name} ended with {last.state}: {last.message or 'the service says no more'}",
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
    for name in (noted, patiently(lambda: service.find(step_of(folder)), _say, PATIENCE_SECONDS)):
        if name is None or name.startswith("local/"):
            continue  # a job on this machine: its processes have ended with it
        look = patiently(functools.partial(service.look, name), _say, PATIENCE_SECONDS)
        if look.state == CANCELLING:
            look = _follow(service, name)
        if look.state == SUCCEEDED or not look.ended:
            return name
    return None


def _cancel(service: Service, name: Optional[str], step: str) -> None:
    """Cancels the job, also one whose name has not come yet. What goes wrong matters less than why it is cancelled."""
    try:
        if name := name or service.find(step):
            service.cancel(name)
    except Exception as error:  # the client raises errors of many kinds
        logger.warning(f"the custom job {name or 'of this step'} may go on: {error}")


def _follow(service: Service, name: str) -> Look:
    return follow(service, name, _say, _REHEARSED_POLL_SECONDS if is_rehearsed() else _POLL_SECONDS)


def _pools(plan: Plan) -> str:
    return ", ".join(
        f"{pool['replica_count']} {role} ({pool['machine_spec']['machine_type']})" for role, pool in plan.pools.items()
    )
