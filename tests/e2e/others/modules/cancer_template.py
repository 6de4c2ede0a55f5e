"""A run_fn that calls train_and_evaluate itself, like the Estimator in TFX's template."""

from __future__ import annotations

import cancer_canned
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx import v1 as tfx


def run_fn(fn_args):
    schema = tfx.utils.parse_pbtxt_file(fn_args.schema_file, schema_pb2.Schema())
    spec = cancer_canned.trainer_fn(fn_args, schema)
    tf.estimator.train_and_evaluate(spec["estimator"], spec["train_spec"], spec["eval_spec"])
    tfma.export.export_eval_savedmodel(
        estimator=spec["estimator"],
        export_dir_base=fn_args.eval_model_dir,
        eval_input_receiver_fn=spec["eval_input_receiver_fn"],
    )
