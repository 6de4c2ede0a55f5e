"""What the Estimator path takes of a trainer_fn."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tfx_estimator.pipeline.base.errors import UserCodeError

pytestmark = pytest.mark.unit


def test_what_a_trainer_fn_does_not_return_is_named():
    from tfx_estimator.components.trainer.estimator import path

    with pytest.raises(UserCodeError, match="trainer_fn returned no eval_spec, train_spec"):
        path._call_trainer_fn(lambda fn_args, schema: {"estimator": 1}, SimpleNamespace(schema_path=None))
