"""An Estimator that begins with weights of another training: `tf.estimator.WarmStartSettings`, made in its graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from tfx_estimator.model_fn.warm_start import Matched, match, of_graph, shape_of
from tfx_estimator.pipeline.base.stack.estimator import bring_back_estimator
from tfx_estimator.pipeline.config.warm_start import WarmStart

bring_back_estimator()


class _Deferred(tf.estimator.WarmStartSettings):
    """Settings that are known once the graph of training is there, in which TensorFlow unpacks them.

    It does where there is no checkpoint yet, and has the variables' initial values be these.
    """

    section: WarmStart
    tell: Callable[[Matched], None]
    own: Any

    def __iter__(self) -> Iterator[Any]:
        if self.own is not None:
            # That of a trainer_fn of the user's may come with weights of its own.
            tf.compat.v1.train.warm_start(*self.own)
        collections = tf.compat.v1.global_variables(), tf.compat.v1.trainable_variables()
        variables = of_graph(*collections)
        shapes = {name: shape_of(parts) for name, parts in variables.items()}
        matched = match(self.ckpt_to_initialize_from, shapes, self.section.exclude)
        self.tell(matched)
        wanted = [_own(part) for name in matched.keys for part in variables[name]]
        return iter((self.ckpt_to_initialize_from, wanted, None, matched.keys))

    def __deepcopy__(self, memo: dict[int, Any]) -> _Deferred:
        """Of each task in a cluster TensorFlow copies the Estimator; a tuple's own copy would unpack it, too early."""
        return self


def _own(variable: Any) -> Any:
    """The variable within that of `central_storage`, whose own initial value nobody reads."""
    return getattr(variable, "_v", variable)


def begin_with(estimator: tf.estimator.Estimator, section: WarmStart, tell: Callable[[Matched], None]) -> None:
    """Has an Estimator begin with other weights.

    Args:
        estimator: Anyone's; what it begins with by itself is read first, and these weights replace it.
        tell: Is told what the user should know of it.
    """
    settings = _Deferred(section.prefix, vars_to_warm_start=".*")
    settings.section, settings.tell, settings.own = section, tell, estimator._warm_start_settings
    estimator._warm_start_settings = settings
