"""What a Trainer is told beyond TFX's own parameters."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.config.class_weights import weights_by_label
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.trainer import TrainerSection

# This function trains a declaration's own network or model_fn on the Estimator path.
BUILT_IN_TRAINER_FN = "tfx_estimator.components.trainer.estimator.trainer_fn.trainer_fn"
# The same on the Keras paths; TFX's Trainer must be given some function.
BUILT_IN_RUN_FN = "tfx_estimator.components.trainer.keras.path.run"
# Execution property: JSON of the settings that decide the model. In `custom_config`, all of them, for the built-in
# trainer_fn alone.
SETTINGS_KEY = "tfx_estimator"
# JSON of the other settings. The driver blanks it, so that it is no part of TFX's key: see `components.execution`.
OPERATION_KEY = "tfx_estimator_operation"
# The pipeline's folder, which whoever submits a compiled pipeline may choose: there the artifacts of each run lie in a
# folder of its own, where no retry finds a training folder.
HOME_KEY = "pipeline_home"
# Values of `Settings.path`.
ESTIMATOR, RUN_FN, KERAS, KERAS_LOOP = "estimator", "run_fn", "keras", "keras_custom_loop"
# Values of `Settings.encoded`.
AS_IS, RESIZED = "as_is", "resized"
_PATHS = {"trainer_fn": ESTIMATOR, "run_fn": RUN_FN}

_OPERATIONAL = {"operational": True}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Deadlines, and what is trained how: written as JSON once, into execution properties and a job, and typed once.

    Whoever writes `Trainer(settings=Settings(…))`, or that of a Tuner, sets `start_timeout` and `stall_timeout`. The
    others are filled: `arguments` and `training_root` by the component, of its own arguments, and the rest by
    `create_pipeline`, of a declaration.

    Args:
        start_timeout: Seconds until a task's first sign of progress.
        stall_timeout: Seconds without any progress; of a run_fn, which reports none, without output or CPU time, or six
            times that without output.
        declaration: The declaration; None in a pipeline of somebody else's. Its section `trainer` decides the model.
        arguments: Entries of the section `trainer` that a Trainer without a declaration was given: `distribution`,
            `warm_start`, `threads`, `gpu`, `onednn`, `profile`.
        training_root: Where training folders lie; empty is beside the `model_run` artifacts.
        image_shape: Height, width, channels of the examples' images.
        label_names: The classes, in the order of their labels.
        source: Fingerprint of the source code that decides the model. TFX's own cache key sees only the name of a
            dotted path.
        encoded: Whether a model is served PNG and JPEG files as well, of the images' own size (`as_is`) or of any, as
            they were `resized`; empty is neither.
        declared: Dotted paths of what the user wrote down himself: he is told of what has no effect.
        path: The way of training: `estimator`, `run_fn`, `keras`, `keras_custom_loop`; empty leaves it to the functions
            that there are.
    """

    start_timeout: float = dataclasses.field(default=300.0, metadata=_OPERATIONAL)
    stall_timeout: float = dataclasses.field(default=600.0, metadata=_OPERATIONAL)
    declaration: Optional[dict[str, Any]] = None
    arguments: Optional[dict[str, Any]] = None
    training_root: str = dataclasses.field(default="", metadata=_OPERATIONAL)
    image_shape: tuple[int, int, int] = (0, 0, 0)
    label_names: tuple[str, ...] = ()
    source: str = ""
    encoded: str = ""
    declared: tuple[str, ...] = dataclasses.field(default=(), metadata=_OPERATIONAL)
    path: str = ""

    @functools.cached_property
    def section(self) -> TrainerSection:
        """The declared section `trainer`, its class weights by label; else the component's own arguments, typed.

        Balanced weights are a word until the examples are counted: see `settling.with_weights`.

        Raises:
            DeclarationError: The class weights do not fit the classes.
        """
        if self.declaration is None:
            return TrainerSection.parse_obj(self.arguments or {})
        section = TrainerSection.parse_obj(self.declaration["trainer"])
        weights = section.class_weights
        if weights is None or isinstance(weights, str) or not self.label_names:
            return section
        return section.copy(update={"class_weights": weights_by_label(weights, self.label_names)})

    @property
    def deploy(self) -> DeploySection:
        """The declaration's section; its defaults where there is none."""
        return DeploySection.parse_obj((self.declaration or {}).get("deploy") or {})

    @property
    def trainer(self) -> Optional[TrainerSection]:
        """The declared section; None in a pipeline of somebody else's."""
        return None if self.declaration is None else self.section

    @property
    def built_in(self) -> Optional[TrainerSection]:
        """The declared section where its batches and steps are those of the training.

        None of a module file, which has its own, and in a pipeline of somebody else's.
        """
        return self.trainer if self.section.module_file is None else None

    @property
    def distribution(self) -> Distribution:
        """Strategies and the supervisor's contract."""
        return self.section.distribution

    @property
    def spinning(self) -> bool:
        """See `TrainerSection.spinning`; in somebody else's pipeline, whose code trains, only what is given counts."""
        section = self.section
        return section.spinning if self.declaration is not None else section.threads.spinning is not False

    def with_trainer(self, **changes: Any) -> Settings:
        """Returns the settings with other entries of the section `trainer`, as a declaration has them."""
        if self.declaration is None:
            return dataclasses.replace(self, arguments={**(self.arguments or {}), **changes})
        trainer = {**self.declaration["trainer"], **changes}
        return dataclasses.replace(self, declaration={**self.declaration, "trainer": trainer})

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Settings:
        """Reads what `dataclasses.asdict` and JSON made of them."""
        restored: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**restored)

    def split(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns what decides the model, and the rest."""
        deciding: dict[str, Any] = {}
        operational: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            part = operational if field.metadata.get("operational") else deciding
            part[field.name] = getattr(self, field.name)
        decides, operates = self.section.split()
        if self.declaration is not None:
            # The data and the preprocessing are not in it: the Trainer is keyed by the artifacts that they became.
            deciding["declaration"] = {"trainer": decides}
            operational["declaration"] = {**self.declaration, "trainer": operates}
        elif self.arguments:
            given = ({name: part[name] for name in part if name in self.arguments} for part in (decides, operates))
            # Threads alone are no part of the key: it is that of a Trainer without any.
            deciding["arguments"], operational["arguments"] = (part or None for part in given)
        return deciding, operational

    def to_properties(self) -> dict[str, str]:
        """Returns the execution properties that carry the settings."""
        parts = zip((SETTINGS_KEY, OPERATION_KEY), self.split())
        return {name: json.dumps(part, sort_keys=True) for name, part in parts}

    @classmethod
    def of(cls, exec_properties: Mapping[str, Any]) -> Settings:
        """Reads what `to_properties` wrote; the defaults, if nothing is there.

        Raises:
            PipelineError: One of the two is missing, or they are those of another release.
        """
        todo = "compile the pipeline with the tfx-estimator that runs it"
        if exec_properties.get(SETTINGS_KEY) and not exec_properties.get(OPERATION_KEY):
            raise PipelineError(
                f"the Trainer's execution lacks the property {OPERATION_KEY}: deadlines, restarts, threads, network",
                expected="the property, in the pipeline's definition or in the execution",
                todo=todo,
            )
        parts = [json.loads(exec_properties.get(key) or "{}") for key in (SETTINGS_KEY, OPERATION_KEY)]
        known = {field.name for field in dataclasses.fields(cls)}
        if unknown := sorted({*parts[0], *parts[1]} - known):
            raise PipelineError(
                f"the Trainer's settings have {', '.join(unknown)}, which this release does not know",
                expected="the settings of this release",
                todo=todo,
            )
        return cls.from_dict(_merge(*parts))


def built_in_function(section: TrainerSection) -> dict[str, str]:
    """Returns what TFX's Trainer is told to call for a declaration: the user's module file, or what is built in."""
    if section.module_file:
        return {"module_file": section.module_file}
    return {"trainer_fn": BUILT_IN_TRAINER_FN} if section.path == ESTIMATOR else {"run_fn": BUILT_IN_RUN_FN}


def path_of(functions: Optional[Sequence[str]]) -> str:
    """Returns the path of the function that TFX would call.

    Args:
        functions: Of a module, the run_fn first; none if its text cannot tell.
    """
    return _PATHS[functions[0]] if functions else ""


def _merge(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Puts the two parts of nested sections together again."""
    merged = {**one, **{key: value for key, value in other.items() if value is not None or key not in one}}
    for key in one.keys() & other.keys():
        if isinstance(one[key], dict) and isinstance(other[key], dict):
            merged[key] = _merge(one[key], other[key])
    return merged
