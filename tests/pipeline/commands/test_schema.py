"""`tfx-estimator schema`."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

from tfx_estimator.__main__ import main
from tfx_estimator.pipeline import presets

pytestmark = pytest.mark.unit


@pytest.fixture
def schema(capsys) -> dict:
    """What the verb prints."""
    assert main(["schema"]) == 0
    return json.loads(capsys.readouterr().out)


def test_it_is_a_schema_of_draft_7(schema):
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    jsonschema.Draft7Validator.check_schema(schema)


@pytest.mark.parametrize("name", presets.names())
def test_presets_and_their_resolved_form_keep_it(schema, capsys, name):
    validator = jsonschema.Draft7Validator(schema)
    validator.validate(yaml.safe_load(presets.path(name).read_text()))
    assert main(["show", name]) == 0
    # Every null of the resolved declaration must be allowed.
    validator.validate(yaml.safe_load(capsys.readouterr().out))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("trainer", "train_step"), 5),
        (("trainer", "train_steps"), "5"),
        (("trainer", "train_steps"), 0),
        (("trainer", "train_epochs"), 0),
        (("beam",), {"runner": "dask"}),
        (("name",), "A"),
        (("data", "image_size"), [28]),
    ],
)
def test_wrong_values_do_not_keep_it(schema, path, value):
    values = yaml.safe_load(presets.path("mnist").read_text())
    target = values
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    assert list(jsonschema.Draft7Validator(schema).iter_errors(values))


def test_every_key_says_what_it_is(schema):
    for name, section in schema["definitions"].items():
        for key, entry in section["properties"].items():
            assert "description" in entry or "$ref" in str(entry), f"{name}.{key}"


def test_writes_a_file_and_says_how_editors_use_it(tmp_path, capsys, schema):
    file = tmp_path / "s.json"
    assert main(["schema", str(file)]) == 0
    assert json.loads(file.read_text()) == schema
    assert f"# yaml-language-server: $schema={file}" in capsys.readouterr().out
    assert main(["schema", str(file)]) == 2
    assert main(["schema", "--help"]) == 0
    assert "# yaml-language-server: $schema=" in capsys.readouterr().out
