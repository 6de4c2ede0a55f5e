"""A module file that moved to run_fn and kept its trainer_fn: TFX calls run_fn."""

from __future__ import annotations

import cancer_canned
import cancer_keras


def trainer_fn(fn_args, schema):
    return cancer_canned.trainer_fn(fn_args, schema)


def run_fn(fn_args):
    cancer_keras.run_fn(fn_args)
