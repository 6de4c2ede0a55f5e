"""What was decided, as a text in TensorBoard."""

from __future__ import annotations

import os

from tfx_estimator.components.trainer.best.copies import FOLDER


def write(training_dir: str, title: str, text: str, step: int) -> None:
    """Writes a text beside the curves."""
    # In the task that exports alone, which has long since imported what these do.
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.text.summary_v2 import text_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(os.path.join(training_dir, FOLDER))
    writer.add_event(Event(step=step, summary=text_pb(title, text)))
    writer.close()
