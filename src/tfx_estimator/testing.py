"""Unit tests of your own code: model_fns, networks, preprocessing_fns, module files and TFX components.

    from tfx_estimator.testing import overfits

    def test_it_learns():
        overfits(model_fn)

Of Estimators, with TensorFlow alone:

    call_model_fn       Calls a model_fn and runs what it returns: the loss, predictions, metrics.
    overfits            Trains on one batch until its loss has fallen; of networks, with TFX.
    same_under          Trains under replicas as on one device.
    Batch               The examples of these three: made up, or yours.
    export_and_serve    Calls the signatures of an exported model.

With TFX:

    preprocess          Runs a preprocessing_fn as Transform does, and as a served model does.
    examples            Makes an Examples artifact.
    artifact            Makes an artifact of another standard type.
    fn_args             Makes TFX's FnArgs for a trainer_fn or run_fn.
    run_component       Runs one TFX component.

In pytest, a plug-in brings `tf.estimator` back, and all files are in pytest's own folder.
"""

import importlib
from typing import Any

_NAMES = {
    "artifacts": ("artifact", "examples"),
    "components": ("Ran", "fn_args", "run_component"),
    "equivalence": ("same_under",),
    "model_fns": ("Batch", "Called", "call_model_fn"),
    "overfitting": ("overfits",),
    "preprocessing": ("preprocess",),
    "serving": ("export_and_serve",),
}
_PLACES = {name: place for place, names in _NAMES.items() for name in names}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"tfx_estimator.pipeline.testing.{_PLACES[name]}"), name)
