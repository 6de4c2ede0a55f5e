"""The Pusher treats blessings, destinations and its artifact as TFX's does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tfx.components import Pusher as Theirs
from tfx.dsl.components.base import executor_spec
from tfx.dsl.io import fileio
from tfx.proto import pusher_pb2
from tfx.types import Channel, standard_artifacts
from tfx.utils import io_utils

from tests.components.pusher.executions import Executor, execute
from tests.folders import small_file_system, write_files
from tests.refusals import refused
from tfx_estimator import Pusher
from tfx_estimator.pipeline.base import errors


@pytest.fixture
def model(tmp_path: Path) -> Path:
    files = {"saved_model.pb": "graph", "variables/variables.index": b"x" * 200_000}
    return write_files(tmp_path / "model" / "Format-Serving", files).parent


def test_a_blessed_model_is_pushed_and_its_artifact_says_where(model, tmp_path):
    pushed = execute(model, tmp_path / "serving", tmp_path / "output", blessed=True, infra=True)
    (version,) = os.listdir(tmp_path / "serving")
    assert pushed.get_int_custom_property("pushed") == 1
    assert pushed.get_string_custom_property("pushed_version") == version
    assert pushed.get_string_custom_property("pushed_destination") == str(tmp_path / "serving" / version)
    for copy in (tmp_path / "serving" / version, tmp_path / "output"):
        assert sorted(os.listdir(copy)) == ["saved_model.pb", "variables"]
        assert (copy / "variables" / "variables.index").stat().st_size == 200_000


@pytest.mark.parametrize("scheme", ["", "ram://alone"])
def test_a_runtime_parameter_may_name_the_folder(model, tmp_path, scheme):
    base = f"{scheme}{tmp_path}/serving"
    pushed = execute(model, base, tmp_path / "output", alone=True)
    assert pushed.get_string_custom_property("pushed_destination").startswith(f"{base}/")


@pytest.mark.parametrize("blessings", [{"blessed": False}, {"infra": False}, {"blessed": True, "infra": False}])
def test_an_unblessed_model_is_not_pushed(model, tmp_path, blessings):
    pushed = execute(model, tmp_path / "serving", tmp_path / "output", **blessings)
    assert pushed.get_int_custom_property("pushed") == 0
    assert not (tmp_path / "serving").exists()


def test_a_retry_finds_the_version_of_an_unreported_push(model, tmp_path):
    first = execute(model, tmp_path / "serving", tmp_path / "1")
    again = execute(model, tmp_path / "serving", tmp_path / "2")
    for name in ("pushed_version", "pushed_destination"):
        assert again.get_string_custom_property(name) == first.get_string_custom_property(name)
    assert len(os.listdir(tmp_path / "serving")) == 1
    assert (tmp_path / "2" / "saved_model.pb").exists()


def test_from_and_to_the_file_systems_of_tensorflow(model, tmp_path):
    io_utils.copy_dir(str(model), "ram://models/1")
    for base in ("ram://serving", str(tmp_path / "serving")):
        pushed = execute("ram://models/1", base, f"{tmp_path}/output").get_string_custom_property("pushed_destination")
        assert fileio.open(f"{pushed}/saved_model.pb", "rb").read() == b"graph"
        assert [name.rstrip("/") for name in fileio.listdir(base)] == [os.path.basename(pushed)]
        again = execute(model, base, f"{tmp_path}/output").get_string_custom_property("pushed_destination")
        assert again == pushed


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("{model}/Format-Serving/saved_model.pb", "cannot be pushed to .*(exists|directory)"),
        ("", "cannot push to the push_destination"),
        ("/proc/serving", "cannot be pushed to /proc/serving"),
        ("nobody://knows/this", "cannot be pushed to nobody://knows/this"),
    ],
)
def test_a_destination_that_cannot_be_used_is_a_stated_error(model, tmp_path, base, message):
    with pytest.raises(errors.PipelineError, match=message) as caught:
        execute(model, base.format(model=model), tmp_path / "output")
    assert caught.value.todo


def test_a_missing_model_is_a_stated_error(tmp_path):
    with pytest.raises(errors.PipelineError, match=r"there is no model to push in .*gone"):
        execute(tmp_path / "gone", tmp_path / "serving", tmp_path / "output")
    assert not (tmp_path / "serving").exists()


def test_a_full_file_system_keeps_the_existing_versions(model, tmp_path):
    small = tmp_path / "small"
    with small_file_system(small, "300k"):
        execute(model, small / "serving", tmp_path / "1")
        (version,) = os.listdir(small / "serving")
        (model / "Format-Serving" / "saved_model.pb").write_text("another")
        full = {"expected": "200,007 bytes", "todo": "make room"}
        with refused(errors.PipelineError, "No space left on device", **full):
            execute(model, small / "serving", tmp_path / "2")
        assert os.listdir(small / "serving") == [version]


def test_the_component_is_tfxs_with_another_executor():
    model = Channel(type=standard_artifacts.Model)
    destination = pusher_pb2.PushDestination(filesystem=pusher_pb2.PushDestination.Filesystem(base_directory="serving"))
    ours, theirs = (kind(model=model, push_destination=destination) for kind in (Pusher, Theirs))
    assert ours.id == theirs.id == "Pusher"
    assert ours.exec_properties == theirs.exec_properties
    assert set(ours.outputs) == {"pushed_model"}
    assert ours.executor_spec.executor_class is Executor

    with pytest.raises(errors.DeclarationError, match="no push_destination"):
        Pusher(model=model)

    class Elsewhere(Executor):
        pass

    spec = executor_spec.ExecutorClassSpec(Elsewhere)
    cloud = Pusher(model=model, custom_config={"project": "p"}, custom_executor_spec=spec)
    assert cloud.executor_spec.executor_class is Elsewhere
