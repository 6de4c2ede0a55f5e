"""What a training task changes in TensorFlow is still needed, and helps."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest
import tensorflow as tf

from tests.root import ROOT
from tfx_estimator.components.trainer.patch import Patch
from tfx_estimator.pipeline.base.errors import TrainingError
from tfx_estimator.pipeline.base.stack import stacks

FAULTS = Path(__file__).with_name("faults.py")
Found = dict[str, Any]


@pytest.fixture(scope="module")
def found() -> tuple[Found, Found]:
    """What came of each fault, by the patch's target: without the patches, and with them."""
    processes = [
        subprocess.Popen(
            [sys.executable, str(FAULTS), which],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for which in ("without", "with")
    ]
    try:
        said = [process.communicate(timeout=280) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0, 0], [errors[-2000:] for _, errors in said]
    without, patched = (dict(map(json.loads, out.splitlines())) for out, _ in said)
    return without, patched


def _asks_only_if_a_checkpoint_may_be_due(without: Any, patched: Any) -> None:
    assert without["runs"] - patched["runs"] >= 16
    assert without["saved"] == patched["saved"] == [0, 7, 14, 20]


def _looks_often_for_the_chief(without: Any, patched: Any) -> None:
    assert without == [30]
    assert patched == [1]


def _takes_an_optimizer_for_each_replica(without: Any, patched: Any) -> None:
    assert without.startswith("RuntimeError")
    assert "Cannot set `iterations` to a new Variable" in without
    assert patched == 2


def _reports_the_accuracy_of_the_larger_class(without: Any, patched: Any) -> None:
    assert without == {"one device": 0.75, "replicas": 0.375}
    assert patched == {"one device": 0.75, "replicas": 0.75}


def _reduces_any_number_of_rows(without: Any, patched: Any) -> None:
    assert "Shape mismatch in the collective instance" in without
    assert patched == [[1, 0, 1], [1, 2, 1]]


def _keeps_a_momentum(without: Any, patched: Any) -> None:
    assert "At least two variables have the same name" in without
    assert patched == [-0.1, -0.15]


CHECKS: dict[str, Callable[[Any, Any], None]] = {
    "CheckpointSaverHook.__init__": _asks_only_if_a_checkpoint_may_be_due,
    "SessionManager.__init__": _looks_often_for_the_chief,
    "get_optimizer_instance_v2": _takes_an_optimizer_for_each_replica,
    "BinaryClassHead._update_accuracy_baseline": _reports_the_accuracy_of_the_larger_class,
    "ParameterServerStrategyExtended._create_var_creator": _keeps_a_momentum,
    "CollectiveReplicaLauncher.all_reduce_indexed_slices": _reduces_any_number_of_rows,
}


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CHECKS)
def test_without_the_patch_there_is_a_fault_that_it_mends(found: tuple[Found, Found], name: str) -> None:
    assert [target.partition(":")[2] for target in found[0]] == list(CHECKS)
    without, patched = (next(each for target, each in side.items() if target.endswith(f":{name}")) for side in found)
    CHECKS[name](without, patched)


# The first is there to be set; the second tells whose code ended a run; a folder in a bucket is renamed by the third
# while Transform publishes its graph.
ASSIGNED = {"tempfile.tempdir", "os._exit", "tf.io.gfile.rename"}
# What a TensorFlow has no more is given back to it.
ASSIGNED |= {"tf.estimator", "tf.compat.v1.estimator", "tf.compat.v2.estimator"}


@pytest.mark.unit
def test_nothing_else_assigns_to_what_it_imports() -> None:
    found = []
    for folder in ("components", "data", "model_fn", "pipeline"):
        for path in (ROOT / folder).rglob("*.py"):
            nodes = list(ast.walk(ast.parse(path.read_text())))
            imports = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
            names = {(each.asname or each.name).partition(".")[0] for node in imports for each in node.names}
            stored = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
            assigned = [node for node in stored if ast.unparse(node) not in ASSIGNED]
            for root in assigned:
                while isinstance(root, ast.Attribute):
                    root = root.value
                found += [f"{path}:{root.lineno}"] if isinstance(root, ast.Name) and root.id in names else []
    assert found == []


@pytest.mark.unit
@pytest.mark.parametrize(
    ("target", "installed"),
    [
        ("tensorflow.python.training.session_manager:SessionManager.gone", None),
        ("tensorflow.python.training.session_manager:Gone.__init__", None),
        ("tensorflow.python.training.gone:SessionManager.__init__", None),
        ("tensorflow.python.training.session_manager:SessionManager.__init__", "2.16.2"),
    ],
)
def test_another_tensorflow_is_not_patched(
    monkeypatch: pytest.MonkeyPatch, target: str, installed: Optional[str]
) -> None:
    monkeypatch.setattr(tf, "__version__", installed or tf.__version__)
    with pytest.raises(TrainingError) as raised:
        Patch(target, print, "something hangs", "never").apply()
    assert f"is not the one that {target} is patched in" in raised.value.what
    assert raised.value.todo == f"install tensorflow=={stacks.current().tensorflow}"


@pytest.mark.unit
def test_a_patch_calls_the_original_once_however_often_it_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def noted(original: Callable[..., Any], *args: Any) -> Any:
        calls.append(args)
        return original(*args)

    monkeypatch.setattr(tf.compat.v1.train.SessionManager, "__init__", tf.compat.v1.train.SessionManager.__init__)
    patch = Patch("tensorflow.python.training.session_manager:SessionManager.__init__", noted, "", "")
    patch.apply()
    patch.apply()
    manager = tf.compat.v1.train.SessionManager()
    assert calls == [(manager,)]
    assert manager._recovery_wait_secs == 30
