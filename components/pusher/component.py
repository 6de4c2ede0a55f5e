"""The Pusher component."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional, Union

from tfx import types
from tfx.components.pusher import component as tfx_pusher
from tfx.dsl.components.base import executor_spec
from tfx.orchestration.data_types import RuntimeParameter
from tfx.proto import pusher_pb2
from tfx.types import standard_artifacts
from tfx.types.component_spec import ChannelParameter
from tfx.types.standard_component_specs import EXAMPLES_KEY, PusherSpec

from tfx_estimator.components.in_python import Argument, read_message
from tfx_estimator.components.pusher.executor import Executor, is_supported
from tfx_estimator.pipeline.base.errors import DeclarationError


class WarmPusherSpec(PusherSpec):
    """TFX's PusherSpec with examples."""

    INPUTS = {
        **PusherSpec.INPUTS,
        EXAMPLES_KEY: ChannelParameter(type=standard_artifacts.Examples, optional=True),
    }


class Pusher(tfx_pusher.Pusher):
    """A drop-in for `tfx.components.Pusher` that makes a version atomically.

    TFX's own copies into the version's folder, and leaves a partial model for the model server if it is killed, or the
    disk is full. This one copies into a draft next to the versions, which model servers ignore, and renames it; the
    next push removes the draft of one that was killed. Concurrent pushes get versions of their own, and numbers only
    grow. A model that already is the newest version, byte for byte, is not copied again: the push that made it may have
    died before it was recorded.

        pusher = Pusher(
            model=trainer.outputs["model"],
            model_blessing=evaluator.outputs["blessing"],
            push_destination=pusher_pb2.PushDestination(
                filesystem=pusher_pb2.PushDestination.Filesystem(base_directory="serving")),
        )

    Component `outputs`: `pushed_model`: a copy of the model, with the properties `pushed`, `pushed_destination` and
    `pushed_version`.

    Args:
        model: Channel of the `standard_artifacts.Model` to push.
        model_blessing: Channel of an Evaluator's `standard_artifacts.ModelBlessing`: a model without it is not pushed.
        infra_blessing: Channel of an InfraValidator's `standard_artifacts.InfraBlessing`, likewise; without `model` it
            must contain the model.
        push_destination: A folder of versions, or an address in object storage; also as a dict, `{"filesystem":
            {"base_directory": "serving"}}`, or a RuntimeParameter. Optional only with another executor.
        examples: Channel of `standard_artifacts.Examples`: a few of them become warm-up requests of TensorFlow Serving,
            if the model has the signatures of a declaration's Trainer.
        custom_config: Configuration of other executors.
        custom_executor_spec: An executor in place of this Pusher's own.

    Raises:
        DeclarationError: There is no push_destination, or it names no folder.
        ValueError: There is neither a model nor an infra_blessing.

    Source: https://www.tensorflow.org/tfx/guide/pusher.
    """

    EXECUTOR_SPEC = executor_spec.ExecutorClassSpec(Executor)

    def __init__(
        self,
        model: Optional[types.BaseChannel] = None,
        model_blessing: Optional[types.BaseChannel] = None,
        infra_blessing: Optional[types.BaseChannel] = None,
        push_destination: Optional[Union[pusher_pb2.PushDestination, Mapping[str, Any], RuntimeParameter]] = None,
        custom_config: Optional[dict[str, Any]] = None,
        custom_executor_spec: Optional[executor_spec.ExecutorSpec] = None,
        examples: Optional[types.BaseChannel] = None,
    ) -> None:
        own = custom_executor_spec is None and self.EXECUTOR_SPEC.executor_class is Executor
        if own and push_destination is None:
            raise DeclarationError(
                "Pusher has no push_destination",
                expected="a pusher_pb2.PushDestination with a filesystem, or an executor that needs none",
                todo="pass push_destination=",
            )
        if own:
            _check_destination(push_destination)
        super().__init__(
            model=model,
            model_blessing=model_blessing,
            infra_blessing=infra_blessing,
            push_destination=push_destination,
            custom_config=custom_config,
            custom_executor_spec=custom_executor_spec,
        )
        if examples is not None:
            # TFX's constructor makes a spec of its own class.
            self.spec.__class__ = WarmPusherSpec
            self.spec.inputs[EXAMPLES_KEY] = examples


def _check_destination(given: Any) -> None:
    """Refuses a destination that the executor cannot push to, before the pipeline runs."""
    folder = given if isinstance(given, str) and not given.startswith("{") else "serving"
    argument = Argument(
        ("push_destination",),
        "Pusher",
        "a pusher_pb2.PushDestination, or a dict: filesystem.base_directory, and versions by timestamp",
        f'push_destination={{"filesystem": {{"base_directory": {folder!r}}}}}, or give it an executor of your own',
    )
    message = read_message(given, pusher_pb2.PushDestination, argument)
    if message is not None and not is_supported(message):
        what = f"{argument.call} is {' '.join(str(message).split()) or 'empty'}: this Pusher cannot push there"
        raise DeclarationError(what, expected=argument.form, todo=argument.todo)
