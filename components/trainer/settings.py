"""The settings of a Trainer beyond TFX's own parameters."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from tfx_estimator.data.features import LABEL
from tfx_estimator.pipeline.base.errors import PipelineError
from tfx_estimator.pipeline.config.class_weights import weights_by_label
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.task import CLASSES, Task
from tfx_estimator.pipeline.config.trainer import TrainerSection

# This function trains a declaration's network or model_fn on the Estimator path.
BUILT_IN_TRAINER_FN = "tfx_estimator.components.trainer.estimator.trainer_fn.trainer_fn"
# The same on the Keras paths; TFX's Trainer requires a function.
BUILT_IN_RUN_FN = "tfx_estimator.components.trainer.keras.path.run"
# Execution property: JSON of the settings that decide the model. In `custom_config` of the built-in trainer_fn, of all
# settings.
SETTINGS_KEY = "tfx_estimator"
# JSON of the other settings. The driver blanks it to keep it out of TFX's cache key: see `components.execution`.
OPERATION_KEY = "tfx_estimator_operation"
# The pipeline's folder, chosen when a compiled pipeline is submitted. A service gives the artifacts of each run their
# own folder, where no retry would find a training folder.
HOME_KEY = "pipeline_home"
# Values of `Settings.path`.
ESTIMATOR, RUN_FN, KERAS, KERAS_LOOP = "estimator", "run_fn", "keras", "keras_custom_loop"
# Values of `Settings.encoded`.
AS_IS, RESIZED = "as_is", "resized"
_PATHS = {"trainer_fn": ESTIMATOR, "run_fn": RUN_FN}

_OPERATIONAL = {"operational": True}


@dataclasses.dataclass(frozen=True)
class Settings:
    """Deadlines, the declaration and the arguments of a training, stored as JSON in execution properties and jobs.

    `Trainer(settings=Settings(…))`, or a Tuner's, sets only `start_timeout` and `stall_timeout`. The component sets
    `arguments` and `training_root` from its own arguments, and `create_pipeline` sets the rest from a declaration.

    Args:
        start_timeout: Seconds until a task's first progress.
        stall_timeout: Seconds without progress; for a run_fn, which reports none, without output and CPU use, or six
            times as long without output alone.
        declaration: The declaration, whose section `trainer` decides the model; None in a pipeline without one.
        arguments: Entries of the section `trainer` from the arguments of a Trainer without a declaration:
            `distribution`, `warm_start`, `tf1`, `threads`, `gpu`, `onednn`, `profile`.
        training_root: Folder of the training folders; empty is next to the `model_run` artifacts.
        image_shape: Height, width, channels of the examples' images.
        label_names: The classes, in the order of their labels.
        source: Fingerprint of the source code that decides the model. TFX's cache key has only a function's dotted
            path.
        encoded: The model also takes PNG and JPEG files: of the images' size (`as_is`), or of any size (`resized`);
            empty if it does not.
        declared: Dotted paths of the user's own entries, for notes on those without effect.
        path: The path of training: `estimator`, `run_fn`, `keras`, `keras_custom_loop`; empty if the user's function
            decides.
        files: Hashes of `trainer.files`.
        rerun: Components that resume nothing.
        table: Of a table of features, the fields of its `Task`.
        goes_on: Of a table of days, the `checkpoint` to go on from, the `folder` of checkpoints in a training's folder,
            and the `transform_graph` that it was trained with; empty if training begins with initial weights.
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
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    rerun: tuple[str, ...] = dataclasses.field(default=(), metadata=_OPERATIONAL)
    table: dict[str, Any] = dataclasses.field(default_factory=dict)
    goes_on: dict[str, str] = dataclasses.field(default_factory=dict, metadata=_OPERATIONAL)

    @property
    def task(self) -> Task:
        """What the model predicts of an example."""
        if not self.table:
            return Task(CLASSES, LABEL, self.label_names)
        return Task(**{**self.table, "names": tuple(self.table["names"])})

    @functools.cached_property
    def section(self) -> TrainerSection:
        """The declared section `trainer`, with class weights by label; else the component's parsed arguments.

        Balanced weights stay `balanced` until the examples are counted: see `settling.with_weights`.

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
    def trainer(self) -> Optional[TrainerSection]:
        """The declared section `trainer`; None without a declaration."""
        return None if self.declaration is None else self.section

    @property
    def built_in(self) -> Optional[TrainerSection]:
        """The declared section `trainer`; None without one, or if a module file sets its own batches and steps."""
        return self.trainer if self.section.module_file is None else None

    @property
    def distribution(self) -> Distribution:
        """Strategies and the supervisor's contract."""
        return self.section.distribution

    @property
    def spinning(self) -> bool:
        """See `TrainerSection.spinning`; without a declaration, true unless the argument `threads` forbids it."""
        section = self.section
        return section.spinning if self.declaration is not None else section.threads.spinning is not False

    def with_trainer(self, **changes: Any) -> Settings:
        """Returns the settings with changed entries of the section `trainer`."""
        if self.declaration is None:
            return dataclasses.replace(self, arguments={**(self.arguments or {}), **changes})
        trainer = {**self.declaration["trainer"], **changes}
        return dataclasses.replace(self, declaration={**self.declaration, "trainer": trainer})

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Settings:
        """Restores the settings from `dataclasses.asdict` and JSON."""
        restored: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        return cls(**restored)

    def split(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the settings that decide the model, and the others."""
        deciding: dict[str, Any] = {}
        operational: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            part = operational if field.metadata.get("operational") else deciding
            part[field.name] = getattr(self, field.name)
        for name in ("files", "table"):
            if not getattr(self, name):
                # Keys of releases without it stay the same.
                del deciding[name]
        decides, operates = self.section.split()
        begins = decides["warm_start"] or {}
        for part, name in ((decides, "freeze"), (begins, "weights"), (begins, "prefix")):
            if not part.get(name):
                part.pop(name, None)
        if self.declaration is not None:
            # Without data and preprocessing: their artifacts are part of the Trainer's cache key.
            deciding["declaration"] = {"trainer": decides}
            operational["declaration"] = {**self.declaration, "trainer": operates}
        elif self.arguments:
            given = ({name: part[name] for name in part if name in self.arguments} for part in (decides, operates))
            # None, not {}, so that a Trainer with only `threads` has the cache key of one without arguments.
            deciding["arguments"], operational["arguments"] = (part or None for part in given)
        return deciding, operational

    def to_properties(self) -> dict[str, str]:
        """Returns the settings as execution properties."""
        parts = zip((SETTINGS_KEY, OPERATION_KEY), self.split())
        return {name: json.dumps(part, sort_keys=True) for name, part in parts}

    @classmethod
    def of(cls, exec_properties: Mapping[str, Any]) -> Settings:
        """Reads the settings from execution properties; the defaults if there are none.

        Raises:
            PipelineError: One of the two properties is missing, or they are from another release.
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
    """Returns TFX's Trainer argument for a declaration: the user's module file, or the built-in function."""
    if section.module_file:
        return {"module_file": section.module_file}
    return {"trainer_fn": BUILT_IN_TRAINER_FN} if section.path == ESTIMATOR else {"run_fn": BUILT_IN_RUN_FN}


def path_of(functions: Optional[Sequence[str]]) -> str:
    """Returns the path of the function that TFX would call.

    Args:
        functions: A module's functions, the run_fn first; None or empty if its source does not show them.
    """
    return _PATHS[functions[0]] if functions else ""


def _merge(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Merges the two parts of nested sections."""
    merged = {**one, **{key: value for key, value in other.items() if value is not None or key not in one}}
    for key in one.keys() & other.keys():
        if isinstance(one[key], dict) and isinstance(other[key], dict):
            merged[key] = _merge(one[key], other[key])
    return merged
