"""Where the ports of a cluster on this machine can be reached from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tfx.types import artifact_utils

from tfx_estimator.components.trainer.protocol.job import Job
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.paths import is_address

logger = get_logger("trainer")

_OPEN = (
    "the ports of the training cluster are open, without authentication, to all who reach this machine: TensorFlow "
    "listens on every address; because "
)


@contextlib.contextmanager
def cluster_network(job: Job, distribution: Distribution) -> Iterator[tuple[int, ...]]:
    """Makes the network that the tasks of a cluster share.

    Args:
        job: What to train; tasks that read or write elsewhere need this machine's own network.

    Yields:
        Descriptors of the namespaces that each task enters; none if the tasks listen in this machine's network.
    """
    if distribution.network == "host":
        yield ()
        return
    from tfx_estimator.components.trainer.cluster.private_network import NoPrivateNetworkError, PrivateNetwork

    inputs = artifact_utils.parse_artifact_dict(job.inputs).values()
    uris = [job.training_dir, *(artifact.uri for channel in inputs for artifact in channel)]
    remote = any(map(is_address, uris))
    with contextlib.ExitStack() as stack:
        fds: tuple[int, ...] = ()
        if remote:
            logger.warning(f"{_OPEN}data or results lie on another machine")
        else:
            try:
                fds = stack.enter_context(PrivateNetwork()).fds
            except NoPrivateNetworkError as error:
                logger.warning(f"{_OPEN}{error}")
        yield fds
