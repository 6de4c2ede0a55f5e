"""The progress of a Beam pipeline on this machine."""

from __future__ import annotations

import logging
import time

import apache_beam as beam

from tfx_estimator.pipeline.base.log import ROOT
from tfx_estimator.pipeline.config.beam import IN_PROCESS
from tfx_estimator.pipeline.runners import beam_progress


def test_elements_are_counted_while_a_stage_runs(monkeypatch, caplog):
    monkeypatch.setattr(beam_progress, "_SECONDS", 0.05)
    caplog.set_level(logging.INFO, ROOT)

    def wait(each):
        time.sleep(0.005)
        return each

    with beam_progress.shown(), beam.Pipeline(runner=IN_PROCESS) as pipeline:
        _ = pipeline | beam.Create(range(100), reshuffle=False) | beam.Map(wait)
    counts = [int(each.partition(" ")[0]) for each in caplog.messages if each.endswith(" elements")]
    assert counts == sorted(counts)
    assert len(set(counts)) > 2
    assert 0 < counts[0] < 100
    caplog.clear()
    with beam.Pipeline(runner=IN_PROCESS) as pipeline:
        _ = pipeline | beam.Create(range(30), reshuffle=False) | beam.Map(wait)
    assert not [each for each in caplog.messages if each.endswith(" elements")]
