"""The whole declaration."""

from __future__ import annotations

from pydantic.v1 import Field, constr

from pipeline.config.beam import BeamSection
from pipeline.config.data import DataSection
from pipeline.config.evaluator import EvaluatorSection
from pipeline.config.pusher import PusherSection
from pipeline.config.section import Section
from pipeline.config.trainer import TrainerSection
from pipeline.config.transform import TransformSection


class Declaration(Section):
    """What to ingest, what to train, how to distribute it and where to run it."""

    name: constr(regex=r"^[a-z][a-z0-9-]{0,62}$") = Field(..., description="the pipeline's name")  # type: ignore[valid-type]
    data: DataSection
    transform: TransformSection = TransformSection()
    trainer: TrainerSection
    evaluator: EvaluatorSection = EvaluatorSection()
    pusher: PusherSection = PusherSection()
    beam: BeamSection = BeamSection()
