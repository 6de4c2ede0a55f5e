"""The TfdsExampleGen component."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional, Union

from tfx import types
from tfx.dsl.components.base import base_beam_component, executor_spec
from tfx.types import component_spec, standard_artifacts

from tfx_estimator.components.in_python import Argument, read_section
from tfx_estimator.components.tfds_example_gen import executor, properties
from tfx_estimator.data.sources import open_source
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.config.explain import explain
from tfx_estimator.pipeline.config.paths import find_unresolved, resolve_paths
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.section import Wrong

_SECTION = "data"
_ARGUMENT = Argument(
    (_SECTION,),
    "TfdsExampleGen",
    'a dict such as {"dataset": "mnist", "splits": {"train": "train[:90%]", "eval": "train[90%:]"}}',
    'give the data set\'s name, or its folder, in a dict: TfdsExampleGen({"dataset": …})',
)

_log = get_logger("data")


class TfdsExampleGenSpec(component_spec.ComponentSpec):
    """Inputs, outputs and execution properties of TfdsExampleGen."""

    INPUTS: dict = {}
    OUTPUTS = {"examples": component_spec.ChannelParameter(type=standard_artifacts.Examples)}
    PARAMETERS = {
        properties.DATA_KEY: component_spec.ExecutionParameter(type=str),
        properties.LOCATION_KEY: component_spec.ExecutionParameter(type=str),
        properties.FINGERPRINT_KEY: component_spec.ExecutionParameter(type=str),
    }


class TfdsExampleGen(base_beam_component.BaseBeamComponent):
    """Writes the examples of a data set as tf.Examples: raw uint8 `image` bytes and an int64 `label`.

    Each split becomes `shards` files of nearly equal size, at most one for each example, in stored order. The same data
    result in the same bytes.

        example_gen = TfdsExampleGen({"dataset": "mnist", "splits": {"train": "train[:90%]", "eval": "train[90%:]"}})
        statistics_gen = StatisticsGen(examples=example_gen.outputs["examples"])

    Inputs: none. Outputs: `examples` (splits `train`, `eval` and, if declared, `test`), which carries the
    data set's name, version, fingerprint, counts, licence and citation as custom properties: see `properties.py`.

    Args:
        data: The section `data` of a declaration as a dict, with paths relative to the current folder; or a
            DataSection.
        fingerprint: Hash of the data; in the cache key it stands for the data set, in any location. None computes it
            from the current data set. A data set that is not downloaded yet has another fingerprint afterwards:
            prepare it first if the next run is to use the cache.

    Raises:
        DataError: The data set cannot be opened, or evaluation would use training examples.
        DeclarationError: The section is wrong.
    """

    SPEC_CLASS = TfdsExampleGenSpec
    DRIVER_CLASS = properties.Driver
    EXECUTOR_SPEC = executor_spec.BeamExecutorSpec(executor.Executor)

    def __init__(self, data: Union[Mapping[str, Any], DataSection], fingerprint: Optional[str] = None) -> None:
        data = read_data(data)
        if fingerprint is None:
            source = open_source(data)
            if source.is_prepared:
                source.resolve_disjoint()
            fingerprint = source.fingerprint(expressions := list(data.splits.declared().values()))
            for note in source.notes(expressions):
                _log.warning(note)
        spec = TfdsExampleGenSpec(
            examples=types.Channel(type=standard_artifacts.Examples),
            **properties.to_properties(data, fingerprint),
        )
        super().__init__(spec=spec)


def read_data(given: Union[Mapping[str, Any], DataSection]) -> DataSection:
    """Parses the component's argument; paths in a dict become absolute.

    Raises:
        DeclarationError: The section is wrong; the message lists all problems.
    """
    data = read_section(given, DataSection, (_SECTION,), _ARGUMENT, _resolve)
    if not data.dataset:
        # Of a declaration, a table may stand in its place.
        missing = Wrong((_SECTION, "dataset"), "missing", "this key is missing")
        raise _ARGUMENT.refusal([explain(missing, {_SECTION: {}}, lambda path: "")])
    return data


def _resolve(values: dict[str, Any]) -> dict[str, Any]:
    whole = {_SECTION: values}
    problems = [
        Problem(".".join(path), what, "a path, or an address", "write the path itself", value=value)
        for path, value, what in find_unresolved(whole)
    ]
    if problems:
        raise _ARGUMENT.refusal(problems)
    resolve_paths(whole, {})
    return whole[_SECTION]
