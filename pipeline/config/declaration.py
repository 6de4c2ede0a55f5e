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
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.config.tune import TuneSection
from tfx_estimator.pipeline.config.yaml_text import render


class PusherSection(Section):
    """Where a blessed model is pushed, into a new versioned folder."""

    destination: Optional[str] = Field(None, "a folder; null is `serving` in the work folder")


class Declaration(Section):
    """What to ingest, what to train, how to distribute it and where to run it."""

    name: str = Field(
        ..., "the pipeline's name: a to z, then a to z, digits and `-`, at most 63", pattern=r"^[a-z][a-z0-9-]{0,62}\Z"
    )
    data: DataSection
    transform: TransformSection = inner()
    trainer: TrainerSection
    tune: Optional[TuneSection] = Field(
        None, "trials of declared values, of which the best train the model; null is none"
    )
    evaluator: EvaluatorSection = inner()
    pusher: PusherSection = inner()
    beam: BeamSection = inner()
    deploy: Optional[DeploySection] = None

    @property
    def shards(self) -> int:
        """The files per split, enough for those who share them."""
        distribution = self.trainer.distribution
        return self.data.shards_for(distribution.train.worker_count if distribution.sharding == "file" else 1)

    def derived(self) -> dict[str, str]:
        """Returns what follows from the values that are left open, by dotted path."""
        found = {}
        if self.data.version is None:
            found["data.version"] = "the newest there is"
        if self.data.shards is None:
            found["data.shards"] = f"{self.shards}, at most one for each example"
        if self.transform.preprocessing_fn is None and self.transform.module_file is None:
            found["transform.preprocessing_fn"] = "standardize"
        known = self.trainer.train_steps is not None
        if not known:
            found["trainer.train_steps"] = "from train_epochs, once the examples are counted"
        if self.trainer.save_checkpoints_steps is None:
            steps = str(self.trainer.checkpoint_steps) if known else "a tenth of the steps, between 100 and 1,000"
            found["trainer.save_checkpoints_steps"] = steps
        if self.trainer.log_every_steps is None:
            steps = str(self.trainer.report_steps) if known else "a fiftieth of the steps, at most 100"
            found["trainer.log_every_steps"] = steps
        optimizer, train = self.trainer.optimizer, self.trainer.distribution.train
        if optimizer.scaling != "none":
            rates = "values" if optimizer.schedule == "piecewise" else "learning_rate"
            # Without declared devices the machine decides how many replicas there are.
            open_count = train.distributes and not train.devices.indices
            devices = ", and more where there are several GPUs" if open_count else ""
            found[f"trainer.optimizer.{rates}"] = f"at most {optimizer.word_scaled(train.replicas)}{devices}"
        if self.trainer.eval_steps is None:
            found["trainer.eval_steps"] = "every example once"
        if self.trainer.class_weights == "balanced":
            found["trainer.class_weights"] = "all examples / (classes * examples of the class), once they are counted"
        if self.tune is not None:
            for name in self.tune.ranges:
                found[name] = "the best of the trials of `tune`"
            if self.tune.max_trials is None:
                found["tune.max_trials"] = str(self.tune.trials or "as many as hyperband takes")
        if self.evaluator.prediction_key is None:
            found["evaluator.prediction_key"] = "the served output that fits"
        if self.pusher.destination is None:
            found["pusher.destination"] = "`serving` in the work folder"
        return found

    def to_json(self) -> str:
        """Returns canonical JSON: equal declarations give equal text, which `from_json` reads back exactly."""
        return json.dumps(self.dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Declaration:
        """Reads what `to_json` wrote.

        Raises:
            DeclarationError: The text is no JSON, or no declaration.
        """
        try:
            return cls.parse_obj(json.loads(text))
        except (ValueError, RecursionError) as error:
            what = f"the stored declaration cannot be read: {error}"
            raise DeclarationError(
                what, expected="the JSON that this version wrote", todo="run again, in a new --workdir"
            ) from error

    def to_yaml(self) -> str:
        """Returns YAML that `load` reads back exactly."""
        return render(self.dict())
