"""`tfx-estimator convert`: copied modules, and messages for errors."""

from __future__ import annotations

import argparse
import pathlib

import pytest

from tfx_estimator.pipeline.base.errors import DeclarationError, UserCodeError
from tfx_estimator.pipeline.commands import convert
from tfx_estimator.pipeline.config import load

DECLARED = """\
name: mine
data: {dataset: "%s", splits: {train: train, eval: test}}
trainer: {model: "net:network", train_steps: 5}
"""


@pytest.mark.parametrize(
    ("dataset", "copied"),
    [("mydata:Builder", ["mydata.py", "net.py", "shapes.py"]), ("mnist:3.0.1", ["net.py"])],
)
def test_the_modules_of_a_declaration_elsewhere_are_copied(tmp_path, dataset, copied):
    home, output = tmp_path / "home", tmp_path / "output"
    home.mkdir()
    (home / "net.py").write_text("def network(num_classes): ...\n")
    (home / "mydata.py").write_text("import shapes\nclass Builder: ...\n")
    (home / "shapes.py").write_text("")
    (home / "mine.yaml").write_text(DECLARED % dataset)
    convert._copy_modules(load(home / "mine.yaml").declaration, None, str(output), str(home))
    assert sorted(each.name for each in output.iterdir()) == copied


def test_a_layer_that_cannot_be_written_is_reported_with_the_missing_method():
    with pytest.raises(UserCodeError, match="NotImplementedError: Layer Own") as raised, convert._user_errors():
        raise NotImplementedError("\nLayer Own was created by passing non-serializable argument values")
    assert "write get_config of each of your own layers" in raised.value.todo
    with pytest.raises(UserCodeError) as raised, convert._user_errors():
        raise ValueError("another")
    assert "get_config" not in raised.value.todo
    whole = "a complete SavedModel"
    with pytest.raises(UserCodeError, match=whole) as raised, convert._user_errors(whole, "copy it again"):
        raise NotImplementedError("an operation")
    assert raised.value.todo == "copy it again"


@pytest.mark.parametrize("version", ["", "1700000000"])
def test_a_saved_model_alone_is_refused_with_the_option_that_takes_it(tmp_path: pathlib.Path, version: str) -> None:
    variables = tmp_path / "exports" / version / "variables"
    variables.mkdir(parents=True)
    (variables / "variables.index").touch()
    parser = argparse.ArgumentParser()
    convert.add_arguments(parser)
    args = parser.parse_args([str(tmp_path / "exports"), "--output", str(tmp_path / "converted")])
    with pytest.raises(DeclarationError, match="exports is a SavedModel") as raised:
        convert.run(args)
    assert "--to graph" in raised.value.todo
    assert not (tmp_path / "converted").exists()
