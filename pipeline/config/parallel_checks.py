"""Checks of `trainer.model_parallel` and `trainer.pipeline_parallel`: whose layers they are, and where they can be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfx_estimator.pipeline.config.builtin import NORMALISING
from tfx_estimator.pipeline.config.code_checks import find_own
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.parallel import DEVICE, ModelParallel, PipelineParallel
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.trainer import TrainerSection

_MODEL, _PIPELINE = "trainer.model_parallel", "trainer.pipeline_parallel"
_DISTRIBUTION = "trainer.distribution"


def check_parallel(declaration: Declaration, search_paths: Sequence[str]) -> Iterator[Problem]:
    """Checks both sections.

    That the layers are there is seen when the network is made: see `validate --deep`.

    Args:
        search_paths: Folders where the user's modules are looked for before `sys.path`.
    """
    trainer = declaration.trainer
    model, pipeline = trainer.model_parallel, trainer.pipeline_parallel
    if model is not None:
        yield from _common(trainer, _MODEL, search_paths)
        yield from _model(model)
    if pipeline is not None:
        yield from _common(trainer, _PIPELINE, search_paths)
        yield from _pipeline(trainer, pipeline)
        if trainer.model in NORMALISING:
            yield Problem(
                _PIPELINE,
                f"{trainer.model} normalises by the statistics of a batch, which would be those of a part of it",
                "a network without batch normalisation",
                "remove it, or choose another network; trainer.model_parallel takes any",
                depends=("trainer.model",),
            )
    if model is not None and pipeline is not None:
        yield Problem(
            _MODEL,
            "trainer.pipeline_parallel puts the layers of each stage on its device as well",
            "one of the two",
            "remove one: model_parallel to have the stages overlap",
            depends=(_PIPELINE,),
        )


def _common(trainer: TrainerSection, path: str, search_paths: Sequence[str]) -> Iterator[Problem]:
    """Whose step it is, and the strategies."""
    if whose := find_own(trainer, search_paths):
        yield Problem(
            path,
            f"{whose} makes its network by itself: its layers cannot be put anywhere from outside",
            "a trainer.model that returns a tf.keras.Model, not compiled",
            "remove it, and write `with tf.device(…)` around the layers in your code; or name the network",
            depends=("trainer.model", "trainer.module_file"),
        )
    for which, section in (("train", trainer.distribution.train), ("eval", trainer.distribution.eval)):
        where = f"{_DISTRIBUTION}.{which}"
        if section.distributes:
            yield Problem(
                path,
                f"each replica of {section.strategy} ({where}) is a whole network on a device that the strategy "
                "chooses, and its variables are there",
                "the strategy one_device, in training and in evaluation",
                f"remove it, or {where}",
                depends=(f"{where}.strategy",),
            )
        elif section.devices.indices:
            yield Problem(
                f"{where}.devices",
                f"{path} names the devices of the one process that trains and evaluates",
                "no devices here",
                f"remove them: they are {path}.devices",
                value=f"{{{section.devices.text}}}",
                depends=(path,),
            )


def _model(section: ModelParallel) -> Iterator[Problem]:
    if len(section.devices) < 2:
        yield Problem(f"{_MODEL}.devices", "there is one place only", "two devices or more", "name another one")
    yield from _devices(f"{_MODEL}.devices", section.devices)
    if not section.layers:
        yield Problem(f"{_MODEL}.layers", "it is empty", "{layer: device}", "name layers: layers: {dense1: 1}")
    for name, index in section.layers.items():
        if index >= len(section.devices):
            yield Problem(
                f"{_MODEL}.layers.{name}",
                f"there are {len(section.devices)} devices, counted from 0",
                f"0 to {len(section.devices) - 1}",
                "lower it, or name more devices",
                value=str(index),
                depends=(f"{_MODEL}.devices",),
            )


def _pipeline(trainer: TrainerSection, section: PipelineParallel) -> Iterator[Problem]:
    stages, devices = section.stages, section.devices
    if isinstance(stages, tuple):
        if len(stages) < 2 or not all(stages):
            yield Problem(
                f"{_PIPELINE}.stages",
                "a pipeline has two stages or more, with a layer each",
                "[[conv1], [dense1]], or a number of stages",
                "correct it",
            )
        yield from _twice(f"{_PIPELINE}.stages", [name for stage in stages for name in stage])
    if devices and len(devices) != section.stage_count:
        yield Problem(
            f"{_PIPELINE}.devices",
            f"there are {len(devices)} for {section.stage_count} stages",
            "one for each stage",
            "name as many, or none",
            depends=(f"{_PIPELINE}.stages",),
        )
    yield from _devices(f"{_PIPELINE}.devices", devices)
    if section.microbatches > trainer.global_batch_size:
        yield Problem(
            f"{_PIPELINE}.microbatches",
            f"a batch has {trainer.global_batch_size} examples: {section.microbatches} parts are more than these",
            f"at most {trainer.global_batch_size}",
            "lower it, or raise trainer.global_batch_size",
            value=str(section.microbatches),
            depends=("trainer.global_batch_size",),
        )
    if trainer.gradient_accumulation > 1:
        yield Problem(
            "trainer.gradient_accumulation",
            "with trainer.pipeline_parallel the parts of a batch are its microbatches, whose gradients are added up",
            "1",
            f"remove it, and raise {_PIPELINE}.microbatches",
            value=str(trainer.gradient_accumulation),
            depends=(_PIPELINE,),
        )


def _devices(path: str, names: Sequence[str]) -> Iterator[Problem]:
    yield from _twice(path, names)
    for name in names:
        if not DEVICE.fullmatch(name):
            todo = "write one such: devices: [cpu:0, cpu:1]"
            yield Problem(
                path,
                "this is no device",
                "cpu:0 to cpu:63, logical CPUs; or gpu:0 to gpu:63, as TensorFlow counts them",
                todo,
                value=name,
            )


def _twice(path: str, names: Sequence[str]) -> Iterator[Problem]:
    for name in dict.fromkeys(each for each in names if names.count(each) > 1):
        yield Problem(path, f"{name} is there more than once", "each once", "remove one of them", value=name)
