"""What containers are told is what was declared, whatever a node makes of `$`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.pipeline.runners.deployed import COMMON, IMAGE, OF_TARGET, refused
from tests.stack import needs_argo
from tfx_estimator.components.trainer.settings import Settings
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.expansion import variables_of, words_of
from tfx_estimator.pipeline.runners.compiling import compile_declaration
from tfx_estimator.pipeline.targets import KUBEFLOW, SPEC_TARGETS, TFJOB

pytestmark = pytest.mark.unit

NETWORK = """\
import tensorflow as tf

def small(num_classes, note):
    return tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(num_classes)])
"""
DECLARATION = """\
name: money
data: {{dataset: "{folder}", splits: {{train: "train[:50%]", eval: "train[50%:]"}}}}
trainer: {{model: "{module}:small", train_steps: 20, params: {{note: {note}}}}}
"""
# What no service may change; each pod has a variable NOTE, and knows its HOSTNAME.
NOTE, PRICE = "a$$b $(NOTE) $HOME $", "5$$ $(NOTE) $(HOSTNAME)"
CLASSES = ("$$both", "$(NOTE)", "plain")


def project(folder: Path, classes: tuple[str, ...], note: str = "plain") -> Path:
    """Writes a user's project; returns the declaration."""
    for name in classes:
        for number in range(2):
            file = folder / "images" / name / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((4, 4, 3), number, np.uint8)).save(file)
    # Modules of one name would be one for the tests' process.
    module = f"nets_of_{folder.name}"
    (folder / f"{module}.py").write_text(NETWORK)
    text = DECLARATION.format(folder=folder / "images", module=module, note=json.dumps(note))
    (folder / "mine.yaml").write_text(text)
    return folder / "mine.yaml"


def there(folder: Path, target: str) -> tuple[str, ...]:
    """The overrides of a target, with the images in a volume of its."""
    mounted = f"deploy.volumes=[{{claim: images, path: '{folder}'}}]"
    if target == TFJOB:
        return (f"deploy.image={IMAGE}", f"deploy.pipeline_root={folder}/runs", mounted)
    return (*COMMON, *OF_TARGET[target], mounted)


def env(**variables: str) -> str:
    return f"deploy.env={json.dumps(variables)}"


def as_started(container: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The words and the variables of a container, as the node starts it."""
    by_node = {"HOSTNAME": "pod-7", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    variables = by_node | variables_of(container, by_node)
    return words_of(container, variables), variables


@needs_argo
def test_a_step_of_kubeflow_is_told_what_was_declared(tmp_path):
    told = (*there(tmp_path, KUBEFLOW), env(NOTE="x", PRICE=PRICE))
    text = compile_declaration(load(project(tmp_path, CLASSES, NOTE), told, KUBEFLOW), KUBEFLOW).text
    templates = {each["name"]: each for each in yaml.safe_load(text)["spec"]["templates"]}
    words, variables = as_started(templates["trainer"]["container"])
    assert (variables["NOTE"], variables["PRICE"]) == ("x", PRICE)
    # What the node knows by itself is not told by the file.
    assert {"name": "WORKFLOW_ID", "valueFrom": _OF_ITS_POD} in templates["trainer"]["container"]["env"]
    (node,) = json.loads(words[words.index("--tfx_ir") + 1])["nodes"]
    parameters = node["pipelineNode"]["parameters"]["parameters"].items()
    settings = Settings.of({key: each["fieldValue"]["stringValue"] for key, each in parameters if "fieldValue" in each})
    assert settings.label_names == CLASSES
    assert settings.trainer is not None
    assert settings.trainer.params == {"note": NOTE}


_OF_ITS_POD = {"fieldRef": {"fieldPath": "metadata.labels['workflows.argoproj.io/workflow']"}}


def test_a_pod_of_a_tfjob_is_told_what_was_declared(tmp_path):
    root = f"{tmp_path}/$(NOTE)$$"
    told = (*there(tmp_path, TFJOB), env(NOTE="x", PRICE=PRICE), f"deploy.pipeline_root={root}")
    text = compile_declaration(load(project(tmp_path, CLASSES, NOTE), told, TFJOB), TFJOB).text
    _, job = yaml.safe_load_all(text)
    (container,) = job["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]["containers"]
    words, variables = as_started(container)
    assert (variables["NOTE"], variables["PRICE"]) == ("x", PRICE)
    assert words[-1] == root


@pytest.mark.parametrize("target", SPEC_TARGETS)
@pytest.mark.parametrize("override", ["deploy.env.PRICE='$(HOSTNAME)'", "deploy.env.PRICE='5$$'"])
def test_what_a_service_of_specifications_would_change_is_refused(target, override):
    (problem,) = refused(target, *COMMON, *OF_TARGET[target], override)
    assert "deploy.env.PRICE: " in problem
    assert "takes `$(NAME)` for a variable's value" in problem
    load("digits", (*COMMON, *OF_TARGET[target], "deploy.env.PRICE='5$ $HOME'"), target)


@pytest.mark.usefixtures("every_target")
def test_a_place_that_whoever_submits_it_may_choose_is_quoted_by_nobody():
    whole = (*COMMON, *OF_TARGET[KUBEFLOW])
    (problem,) = refused(KUBEFLOW, *whole, "deploy.pipeline_root='gs://example-bucket/$(NOTE)'")
    assert "deploy.pipeline_root: " in problem
