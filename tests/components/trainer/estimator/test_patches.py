"""A training task's patches of TensorFlow are still needed, and work."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest
import tensorflow as tf

from tests.root import ROOT, finish, start_python
from tfx_estimator.components.trainer.patch import Patch
from tfx_estimator.pipeline.base.errors import TrainingError
from tfx_estimator.pipeline.base.stack import stacks

FAULTS = Path(__file__).with_name("faults.py")
Found = dict[str, Any]


@pytest.fixture(scope="module")
def found() -> tuple[Found, Found]:
    """Returns each fault's result by the patch's target: without the patches, and with them."""
    outputs = finish(*(start_python(str(FAULTS), which, cwd=ROOT) for which in ("without", "with")), timeout=280)
    without, patched = (dict(map(json.loads, out.splitlines())) for out in outputs)
    return without, patched


# The error without the patch, or None if the check compares numbers; and the result with it.
CHECKS: dict[str, tuple[Any, Any]] = {
    "CheckpointSaverHook.__init__": (None, [0, 7, 14, 20]),
    "SessionManager.__init__": ([30], [1]),
    # Gradients of tf.gradients are added up, as by TensorFlow's own optimizers.
    "Optimizer.__init__": ([-1.0, -3.0], [-4.0, -4.0]),
    "StrategyExtendedV2.update": ([1, 1], [0, 0]),
    "get_optimizer_instance_v2": ("Cannot set `iterations` to a new Variable", 2),
    "BinaryClassHead._update_accuracy_baseline": (
        {"one device": 0.75, "replicas": 0.375},
        {"one device": 0.75, "replicas": 0.75},
    ),
    "ParameterServerStrategyExtended._create_var_creator": ("At least two variables have the same name", [-0.1, -0.15]),
    "CollectiveReplicaLauncher.all_reduce_indexed_slices": (
        "Shape mismatch in the collective instance",
        [[1, 0, 1], [1, 2, 1]],
    ),
}


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CHECKS)
def test_the_patch_fixes_an_existing_fault(found: tuple[Found, Found], name: str) -> None:
    assert [target.partition(":")[2] for target in found[0]] == list(CHECKS)
    without, patched = (next(each for target, each in side.items() if target.endswith(f":{name}")) for side in found)
    fault, fixed = CHECKS[name]
    if fault is None:
        # A checkpoint hook reads the step only if a checkpoint may be due.
        assert without["runs"] - patched["runs"] >= 16
        without, patched = (side["saved"] for side in (without, patched))
        assert without == fixed
    elif isinstance(fault, str):
        assert fault in without
    else:
        assert without == fault
    assert patched == fixed


@pytest.mark.timeout(300)
def test_rows_of_an_embedding_are_summed_without_its_other_rows() -> None:
    (output,) = finish(start_python(str(FAULTS.with_name("rows.py")), cwd=ROOT), timeout=280)
    # A step with more rows than there are places sums the table.
    assert [int(size) >= 5000 for size in output.split()] == [False, False, False, True, False]


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
    assert f"{target} cannot be patched in TensorFlow " in raised.value.what
    assert raised.value.todo == f"install tensorflow=={stacks.current().tensorflow}"


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
