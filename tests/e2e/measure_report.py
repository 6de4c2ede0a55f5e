"""CPU seconds of a report at the end of a run, which has TensorFlow imported by then: `measure_report.py LOGS PAGE`."""

from __future__ import annotations

import sys
import time

import ml_metadata  # noqa: F401
import tensorflow as tf  # noqa: F401

from tfx_estimator.pipeline.report.source import read_run

started = time.process_time()
from tfx_estimator.pipeline.report.report import write_report  # noqa: E402

write_report(read_run(sys.argv[1]), sys.argv[2])
print(time.process_time() - started)
