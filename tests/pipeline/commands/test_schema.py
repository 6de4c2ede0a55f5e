"""`tfx-estimator schema`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import jsonschema
import pytest
import yaml

from tfx_estimator.pipeline import presets
from tfx_estimator.pipeline.config.beam import BeamSection
from tfx_estimator.pipeline.config.data import DataSection, TransformSection
from tfx_estimator.pipeline.config.declaration import PusherSection
from tfx_estimator.pipeline.config.evaluator import EvaluatorSection
from tfx_estimator.pipeline.config.section import Section
from tfx_estimator.pipeline.config.trainer import TrainerSection


@pytest.fixture
def schema(cli) -> dict:
    return json.loads(cli("schema").out)


def test_it_is_a_schema_of_draft_7(schema):
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    jsonschema.Draft7Validator.check_schema(schema)


@pytest.mark.parametrize("name", presets.names())
def test_presets_and_their_resolved_form_are_valid(schema, cli, name):
    validator = jsonschema.Draft7Validator(schema)
    validator.validate(yaml.safe_load(presets.path(name).read_text()))
    # Every null of the resolved declaration must be allowed.
    validator.validate(yaml.safe_load(cli("show", name).out))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("trainer", "train_step"), 5),
        (("trainer", "train_steps"), "5"),
        (("trainer", "train_steps"), 0),
        (("beam",), {"runner": "dask"}),
        (("name",), "A"),
    ],
)
def test_wrong_values_are_not_valid(schema, path, value):
    values = yaml.safe_load(presets.path("mnist").read_text())
    target = values
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    assert list(jsonschema.Draft7Validator(schema).iter_errors(values))


def test_every_key_has_a_description(schema):
    for name, section in schema["definitions"].items():
        # An item of trainer.augment is a name, or an object.
        (properties,) = [part["properties"] for part in (section, *section.get("anyOf", ())) if "properties" in part]
        for key, entry in properties.items():
            assert "description" in entry or "$ref" in str(entry), f"{name}.{key}"


def test_writes_a_file_and_says_how_editors_use_it(tmp_path, cli, schema):
    file = tmp_path / "s.json"
    assert f"# yaml-language-server: $schema={file}" in cli("schema", str(file)).out
    assert json.loads(file.read_text()) == schema
    cli("schema", str(file), code=2)
    assert "# yaml-language-server: $schema=" in cli("schema", "--help").out


def test_the_schemas_defaults_are_those_that_show_prints(schema):
    def resolve(typed: dict) -> dict:
        choices = [typed, *typed.get("anyOf", []), *typed.get("allOf", [])]
        choices += [each for choice in choices for each in choice.get("allOf", [])]
        reference = next((each["$ref"] for each in choices if "$ref" in each), "")
        return schema["definitions"][reference.rpartition("/")[2]] if reference else {}

    def check(section: Section, properties: dict, path: str) -> Iterator[str]:
        for name, field in type(section).__fields__.items():
            typed, value = properties[name], getattr(section, name)
            if isinstance(value, Section):
                yield from check(value, resolve(typed)["properties"], f"{path}.{name}")
            elif not field.required:
                assert typed["default"] == json.loads(json.dumps(value)), f"{path}.{name}"
                yield f"{path}.{name}"

    sections = [BeamSection(), EvaluatorSection(), PusherSection(), TransformSection()]
    sections += [DataSection(), TrainerSection()]
    definitions = schema["definitions"]
    names = [
        name
        for section in sections
        for name in check(section, definitions[type(section).__name__]["properties"], type(section).__name__)
    ]
    assert "EvaluatorSection.max_accuracy_drop" in names
    assert len(names) > 40
