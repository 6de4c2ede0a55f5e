"""A user's own pipeline with all kinds of components, independent of this project."""

from typing import Any

from tfx.components import CsvExampleGen, Evaluator
from tfx.dsl.component.experimental import placeholders
from tfx.dsl.component.experimental.annotations import InputArtifact, OutputArtifact, OutputDict, Parameter
from tfx.dsl.component.experimental.container_component import create_container_component
from tfx.dsl.component.experimental.decorators import component
from tfx.dsl.components.common.importer import Importer
from tfx.dsl.components.common.resolver import Resolver
from tfx.dsl.input_resolution.strategies.latest_artifact_strategy import LatestArtifactStrategy
from tfx.dsl.input_resolution.strategies.latest_blessed_model_strategy import LatestBlessedModelStrategy
from tfx.orchestration.data_types import RuntimeParameter
from tfx.orchestration.pipeline import Pipeline
from tfx.types import Channel
from tfx.types.standard_artifacts import Model, ModelBlessing


@component
def Making(  # noqa: N802
    model: OutputArtifact[Model], word: Parameter[str], times: Parameter[int], rate: Parameter[float]
) -> OutputDict(said=str, count=int):
    with open(model.uri, "w") as file:
        file.write(word * times)
    model.set_float_custom_property("rate", rate)
    return {"said": word, "count": times}


@component
def Taking(  # noqa: N802
    model: InputArtifact[Model], copied: OutputArtifact[Model], said: Parameter[str], count: Parameter[int]
):
    with open(model.uri) as read, open(copied.uri, "w") as written:
        written.write(f"{read.read()} {said} {'x' * count} {model.get_float_custom_property('rate')}")


@component
def Comparing(baseline_model: InputArtifact[Model] = None, other: InputArtifact[Model] = None):  # noqa: N802
    pass


Boxed = create_container_component(
    name="Boxed",
    image="registry.example/boxed",
    inputs={"model": Model},
    outputs={"copied": Model},
    parameters={"word": str},
    command=[
        "sh",
        "-c",
        'cp "$0" "$1"; echo "$2"',
        placeholders.InputUriPlaceholder("model"),
        placeholders.OutputUriPlaceholder("copied"),
        placeholders.InputValuePlaceholder("word"),
    ],
)


def make_pipeline(*more: Any) -> Pipeline:
    """Makes the pipeline, with more components."""
    making = Making(word=RuntimeParameter("word", str, "hello"), times=3, rate=0.5)
    model, said, count = (making.outputs[name] for name in ("model", "said", "count"))
    examples = CsvExampleGen(input_base="gs://there/data")
    latest = resolver(True).with_id("Blessed")
    components = [
        making,
        Taking(model=model, said=said.future()[0].value, count=count.future()[0].value),
        Boxed(model=model, word="of a box"),
        Importer(source_uri="gs://there/model", artifact_type=Model).with_id("Imported"),
        examples,
        latest,
        Evaluator(examples=examples.outputs["examples"], model=model, baseline_model=latest.outputs["model"]),
        *more,
    ]
    return Pipeline("own", "gs://there/own", components=components, enable_cache=True)


def resolver(blessed: bool) -> Resolver:
    """A resolver of the latest model."""
    channels = {"model": Channel(type=Model), **({"model_blessing": Channel(type=ModelBlessing)} if blessed else {})}
    strategy = LatestBlessedModelStrategy if blessed else LatestArtifactStrategy
    return Resolver(strategy_class=strategy, **channels)
