"""What is to be known of the data of a declaration that is compiled."""

from __future__ import annotations

import os
from collections.abc import Iterator

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.targets import TARGETS


def note_data(declaration: Declaration, target: str) -> Iterator[str]:
    """Says where the machine that compiles does not see the data: their files are not in the fingerprint then.

    Args:
        target: Where it is to be deployed.
    """
    folder = declaration.data.data_dir
    # A TFJob looks its data up itself; the embedded digits are the same everywhere.
    if target not in TARGETS or folder is None or is_address(folder) or declaration.data.dataset == "digits":
        return
    if not os.path.isdir(os.path.expanduser(folder)):
        yield (
            f"data.data_dir: {folder} is not on this machine, so that the fingerprint of the data set is without its "
            "files: where they change, steps are taken from the cache all the same. Compile where the volume is mounted"
        )
