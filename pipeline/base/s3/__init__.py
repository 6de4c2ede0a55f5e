"""s3:// for TensorFlow: S3 and the stores that speak its protocol, by boto3.

TensorFlow reads and writes gs:// itself; for s3:// it asks a plug-in, and tensorflow-io's loads with no TensorFlow of
the stacks.
"""

from __future__ import annotations

import importlib.util

SCHEME = "s3://"


def is_installed() -> bool:
    """Returns whether the store's client is installed."""
    return importlib.util.find_spec("boto3") is not None
