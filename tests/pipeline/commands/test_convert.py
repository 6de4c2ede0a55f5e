"""What `tfx-estimator convert` does around a conversion."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.base.errors import UserCodeError
from tfx_estimator.pipeline.commands import convert
from tfx_estimator.pipeline.config import load

pytestmark = pytest.mark.unit

DECLARED = """\
name: mine
data: {dataset: "%s", splits: {train: train, eval: test}}
trainer: {model: "net:network", train_steps: 5}
"""


@pytest.mark.parametrize(
    ("dataset", "brought"),
    [("mydata:Builder", ["mydata.py", "net.py", "shapes.py"]), ("mnist:3.0.1", ["net.py"])],
)
def test_the_modules_of_a_declaration_elsewhere_are_brought(tmp_path, dataset, brought):
    home, output = tmp_path / "home", tmp_path / "output"
    home.mkdir()
    (home / "net.py").write_text("def network(num_classes): ...\n")
    (home / "mydata.py").write_text("import shapes\nclass Builder: ...\n")
    (home / "shapes.py").write_text("")
    (home / "mine.yaml").write_text(DECLARED % dataset)
    convert._bring(load(home / "mine.yaml").declaration, None, str(output), str(home))
    assert sorted(each.name for each in output.iterdir()) == brought


def test_a_layer_that_cannot_be_written_is_told_with_what_it_lacks():
    with pytest.raises(UserCodeError, match="NotImplementedError: Layer Own") as told, convert._told():
        raise NotImplementedError("\nLayer Own was created by passing non-serializable argument values")
    assert "write get_config of each layer of your own" in told.value.todo
    with pytest.raises(UserCodeError) as told, convert._told():
        raise ValueError("another")
    assert "get_config" not in told.value.todo
