"""The `beam` section as Beam's flags."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.pipeline.runners.deployed import COMMON, OF_TARGET, refused
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.config.beam import BeamSection
from tfx_estimator.pipeline.user_source import packages

pytestmark = pytest.mark.unit


def test_the_default_is_the_engine_in_memory():
    assert BeamSection().pipeline_args() == [
        "--runner=apache_beam.runners.portability.fn_api_runner.FnApiRunner",
        "--sdk_container_image=none",
    ]


def test_a_job_server_is_told_by_its_fields():
    section = BeamSection(
        runner="portable",
        job_endpoint="flink:8099",
        environment_type="DOCKER",
        environment_config="images/mine:1",
        workers=3,
        options=["--parallelism=6"],
    )
    assert section.pipeline_args() == [
        "--runner=PortableRunner",
        "--parallelism=6",
        "--job_endpoint=flink:8099",
        "--environment_type=DOCKER",
        "--environment_config=images/mine:1",
        "--sdk_worker_parallelism=3",
        "--sdk_container_image=images/mine:1",
    ]


def test_dataflow_stages_below_its_temporary_folder_unless_told_otherwise():
    needed = {"project": "mine-1", "region": "europe-west4", "temp_location": "gs://mine/tmp/"}
    needed["sdk_container_image"] = "images/mine:1"
    args = BeamSection(runner="dataflow", dataflow={**needed, "use_public_ips": False}).pipeline_args()
    assert args == [
        "--runner=tfx_estimator.pipeline.beam.dataflow.DataflowRunner",
        "--project=mine-1",
        "--region=europe-west4",
        "--temp_location=gs://mine/tmp/",
        "--staging_location=gs://mine/tmp/staging",
        "--sdk_container_image=images/mine:1",
        "--no_use_public_ips",
    ]
    needed["staging_location"] = "gs://mine/elsewhere"
    args = BeamSection(runner="dataflow", dataflow={**needed, "labels": {"team": "a"}}).pipeline_args()
    assert "--staging_location=gs://mine/elsewhere" in args
    assert args[-1] == '--labels={"team": "a"}'


@pytest.mark.parametrize("target", ["", "kubeflow"])
@pytest.mark.parametrize(
    ("beam", "taken"),
    [
        ("runner: portable, job_endpoint: 'a:1', environment_type: EXTERNAL, environment_config: 'a:2'", False),
        ("runner: portable, job_endpoint: 'a:1', environment_type: DOCKER, environment_config: mine", False),
        ("runner: portable, options: [--job_endpoint=a:1, --environment_type=PROCESS]", False),
        ("runner: portable, job_endpoint: 'a:1', environment_type: LOOPBACK", True),
        ("runner: direct", True),
    ],
)
def test_a_builder_of_ones_own_is_read_by_this_process_alone(target, beam, taken):
    whole = (*COMMON, *OF_TARGET[target]) if target else ()
    # Of a module that is not there.
    problems = refused(target, *whole, "data={dataset: 'shapes:Shapes'}", f"beam={{{beam}}}")
    told = [problem for problem in problems if "have no module of yours" in problem]
    assert bool(told) is not taken
    # It is refused there itself.
    assert not any("LOOPBACK" in problem for problem in told if target)


def test_no_target_is_told_of_workers_in_the_process_itself():
    beam = "beam={runner: portable, job_endpoint: 'a:1'}"
    (problem,) = refused("kubeflow", *COMMON, *OF_TARGET["kubeflow"], beam)
    assert "LOOPBACK" not in problem
    assert "LOOPBACK" in refused("", beam)[0]


_WORKERS = "beam={runner: portable, job_endpoint: 'a:1', environment_type: EXTERNAL, environment_config: 'a:2'}"
_BUILDER = "class Shapes:\n    pass\n"


@pytest.fixture
def fresh() -> Iterator[None]:
    """What is installed is read once in a process."""
    packages._by_module.cache_clear()
    yield
    packages._by_module.cache_clear()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize("place", ["site-packages", "editable"])
def test_a_builder_of_an_installed_package_is_read_by_workers_that_have_it(place, tmp_path, monkeypatch):
    (tmp_path / place).mkdir()
    (tmp_path / place / "shapes.py").write_text(_BUILDER)
    monkeypatch.syspath_prepend(tmp_path / place)
    told = tmp_path / place / "my_shapes-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: my-shapes\nVersion: 1.0\n")
    (told / "top_level.txt").write_text("shapes\n")
    if place == "editable":
        where = {"url": (tmp_path / place).as_uri(), "dir_info": {"editable": True}}
        (told / "direct_url.json").write_text(json.dumps(where))
    mine = ("data={dataset: 'shapes:Shapes'}", _WORKERS)
    (note,) = [note for note in load("digits", mine).notes if "installed package" in note]
    assert note == "data.dataset: shapes:Shapes is of an installed package: Beam's workers must have my-shapes, too"
    (note,) = [
        note
        for note in load("digits", (*COMMON, *OF_TARGET["kubeflow"], *mine), "kubeflow").notes
        if note.startswith("data.dataset: shapes:Shapes is of")
    ]
    assert "Beam's workers and the image must have my-shapes" in note
    assert not [note for note in load("digits", mine[:1]).notes if "installed package" in note]
    # Of the same name, a file beside the declaration comes first.
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "shapes.py").write_text(_BUILDER)
    monkeypatch.chdir(tmp_path / "here")
    assert any("have no module of yours" in problem for problem in refused("", *mine))


def test_a_builder_in_a_file_of_ones_own_is_refused(tmp_path, monkeypatch):
    (tmp_path / "shapes.py").write_text(_BUILDER)
    monkeypatch.chdir(tmp_path)
    (problem,) = refused("", "data={dataset: 'shapes:Shapes'}", _WORKERS)
    assert "install its package, here and where the workers run" in problem
