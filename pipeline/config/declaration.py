"""The whole declaration."""

from __future__ import annotations

import json
from typing import Optional

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.beam import BeamSection
from tfx_estimator.pipeline.config.data import DataSection, TransformSection
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.evaluator import EvaluatorSection
from tfx_estimator.pipeline.config.section import Field, Section, inner
from tfx_estimator.pipeline.config.tracking import TrackingSection
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.tune import TuneSection
from tfx_estimator.pipeline.config.yaml_text import render


class PusherSection(Section):
    """Where a blessed model is pushed: into a new versioned folder."""

    destination: Optional[str] = Field(None, "a folder; null is `serving` in the work folder")


class ServingSection(Section):
    """How the trained model is served."""

    encoded: bool = Field(True, "add a signature of this name that takes PNG and JPEG files")
    warm_up: bool = Field(True, "push warm-up requests with the model, which TensorFlow Serving runs before it serves")


class Declaration(Section):
    """What to ingest, what to train, how to distribute it and where to run it."""

    # For YAML anchors; `draft` removes them.
    SCHEMA = {"patternProperties": {"^x-": {}}}

    name: str = Field(
        ..., "a to z, then also digits, `-` and, on this machine, `_`; at most 63", pattern=r"^[a-z][a-z0-9_-]{0,62}\Z"
    )
    data: DataSection
    transform: TransformSection = inner()
    trainer: TrainerSection
    tune: Optional[TuneSection] = Field(None, "hyperparameter trials, whose best values train the model; null is none")
    evaluator: EvaluatorSection = inner()
    serving: ServingSection = inner()
    pusher: PusherSection = inner()
    beam: BeamSection = inner()
    tracking: TrackingSection = inner()
    deploy: Optional[DeploySection] = None

    @property
    def shards(self) -> int:
        """Files per split: at least one per worker that reads files of its own."""
        distribution = self.trainer.distribution
        return self.data.shards_for(distribution.train.worker_count if distribution.sharding == "file" else 1)

    def derived(self) -> dict[str, str]:
        """Returns the values derived for the keys that are not declared, by dotted path."""
        trainer, optimizer, train = self.trainer, self.trainer.optimizer, self.trainer.distribution.train
        known = trainer.train_steps is not None
        checkpoints = str(trainer.checkpoint_steps) if known else "a tenth of the steps, between 100 and 1,000"
        reports = str(trainer.report_steps) if known else "a fiftieth of the steps, at most 100"
        balance = "all examples / (classes * examples of the class), once they are counted"
        rates = "values" if optimizer.schedule == "piecewise" else "learning_rate"
        # Without declared devices, the machine determines the number of replicas.
        more = ", and more where there are several GPUs" if train.distributes and not train.devices.indices else ""
        # Dotted path; whether it is derived; the derived value.
        table = (
            ("data.version", self.data.version is None, "the newest prepared one, else the newest"),
            ("data.shards", self.data.shards is None, f"{self.shards}, at most one for each example"),
            ("transform.preprocessing_fn", self.transform == TransformSection(), "standardize"),
            ("trainer.train_steps", not known, "from train_epochs, once the examples are counted"),
            ("trainer.save_checkpoints_steps", trainer.save_checkpoints_steps is None, checkpoints),
            ("trainer.log_every_steps", trainer.log_every_steps is None, reports),
            (
                f"trainer.optimizer.{rates}",
                optimizer.scaling != "none",
                f"at most {optimizer.describe_scaled(train.replicas)}{more}",
            ),
            ("trainer.eval_steps", trainer.eval_steps is None, "every example once"),
            ("trainer.class_weights", trainer.class_weights == "balanced", balance),
            ("evaluator.prediction_key", self.evaluator.prediction_key is None, "the served output that fits"),
            ("pusher.destination", self.pusher.destination is None, "`serving` in the work folder"),
        )
        found = {path: value for path, is_derived, value in table if is_derived}
        if self.tune is not None:
            found |= dict.fromkeys(self.tune.ranges, "the best of the trials of `tune`")
            if self.tune.max_trials is None:
                found["tune.max_trials"] = str(self.tune.trials or "as many as hyperband takes")
        return found

    def to_json(self) -> str:
        """Returns canonical JSON, equal for equal declarations, which `from_json` reads back exactly."""
        return json.dumps(self.dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Declaration:
        """Reads what `to_json` wrote."""
        try:
            return cls.parse_obj(json.loads(text))
        except (ValueError, RecursionError) as error:
            what, expected = f"the stored declaration cannot be read: {error}", "JSON that this version wrote"
            raise DeclarationError(what, expected=expected, todo="run again, in a new --workdir") from error

    def to_yaml(self) -> str:
        """Returns YAML that `load` reads back exactly."""
        return render(self.dict())
