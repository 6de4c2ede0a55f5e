"""The scripts for TFX's own command line, for services."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import yaml

from tests.pipeline.runners.deployed import as_sections
from tfx_estimator.__main__ import main
from tfx_estimator.pipeline.config import load
from tfx_estimator.pipeline.platforms.registry import KUBEFLOW, VERTEX
from tfx_estimator.pipeline.runners import service_runner

pytestmark = pytest.mark.unit

DATA = {"dataset": "digits", "splits": {"train": "train[:80%]", "eval": "train[80%:]"}}


@pytest.fixture(params=[VERTEX, KUBEFLOW])
def script(request, tmp_path, monkeypatch, capsys) -> tuple[str, str]:
    """A target and its script, with a declaration beside it, in the current folder; and what `compile` makes of it."""
    target = request.param
    monkeypatch.chdir(tmp_path)
    Path("networks.py").write_text("def small(num_classes):\n    raise AssertionError\n")
    trainer = {"model": "networks:small", "train_steps": 10}
    declaration = {"name": "digits", "data": DATA, "trainer": trainer, **as_sections(target)}
    Path("mine.yaml").write_text(yaml.safe_dump(declaration))
    assert load("mine.yaml", target=target)
    assert main(["copy", f"{target}_runner", "runner.py"]) == 0
    assert f"tfx pipeline compile --engine {target} --pipeline_path runner.py" in capsys.readouterr().out
    assert main(["compile", "mine.yaml", "--target", target, "--output", "wanted"]) == 0
    assert "note: deploy.image: steps have accelerators" in capsys.readouterr().err
    return target, Path("wanted").read_text()


def test_the_script_compiles_what_compile_does(script, capsys):
    from tfx.tools.cli import labels

    target, wanted = script
    module = importlib.import_module(f"tfx.tools.cli.handler.{target}_handler")
    handler = getattr(module, f"{target.capitalize()}Handler")
    handler({labels.ENGINE_FLAG: target, labels.PIPELINE_DSL_PATH: "runner.py"}).compile_pipeline()
    assert Path("digits.json" if target == VERTEX else "digits.workflow.yaml").read_text() == wanted
    assert len(list(Path().glob("*.whl"))) == 1
    # And says as much.
    said, remarks = capsys.readouterr()
    assert "note: deploy.image: steps have accelerators" in remarks
    assert "your own modules, networks" in said
    assert "submit it to project example-project, region europe-west4" in said or target == KUBEFLOW


def test_what_is_wrong_is_said_and_ends_the_script(script, capsys):
    target, _ = script
    (wheel,) = Path().glob("*.whl")
    wheel.unlink()
    wheel.mkdir()
    declared = yaml.safe_load(Path("mine.yaml").read_text())
    for code, said in ((1, f"{wheel} cannot be written: Is a directory"), (2, "deploy.image")):
        with pytest.raises(SystemExit) as ended:
            service_runner.main("mine.yaml", target)
        assert ended.value.code == code
        assert said in capsys.readouterr().err
        declared["deploy"].pop("image", None)
        Path("mine.yaml").write_text(yaml.safe_dump(declared))
