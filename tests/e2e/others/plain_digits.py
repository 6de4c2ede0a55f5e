"""Trains Estimators of `digit_models` by plain tf.estimator, without this project."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parent / "modules"))
import digit_models


def main(examples: str, root: str, steps: str, *names: str) -> None:
    """Trains the models; names are of models and parts, such as `normalised:2`."""
    for each in names:
        name, parts = each.split(":")
        fn_args = SimpleNamespace(
            train_files=f"{examples}/Split-train/*",
            eval_files=f"{examples}/Split-eval/*",
            train_steps=int(steps),
            serving_model_dir=f"{root}/{name}",
            custom_config={"model": name, "parts": int(parts)},
        )
        spec = digit_models.trainer_fn(fn_args, None)
        metrics, _ = tf.estimator.train_and_evaluate(spec["estimator"], spec["train_spec"], spec["eval_spec"])
        print(json.dumps([name, {key: float(value) for key, value in metrics.items()}]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
