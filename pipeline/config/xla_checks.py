"""Checks of `trainer.xla`: whose step would be compiled, and where XLA cannot compile it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfx_estimator.pipeline.config.builtin import NORMALISING
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.whole_model_fn import find_own

_STRATEGY = "trainer.distribution.train.strategy"
# Networks of ours.
_MAX_POOLING = ("mnist_cnn", "cifar_cnn", "cifar_resnet9")
_NORM = "synchronized"


def check_xla(declaration: Declaration, search_paths: Sequence[str]) -> Iterator[Problem]:
    """Checks that the built-in step trains, and on a strategy that XLA can compile a step for.

    A compiled model is known when it is made: it is refused then.

    Args:
        declaration: Typed values.
        search_paths: Folders where the user's modules are looked for before `sys.path`.

    Yields:
        The problems.
    """
    trainer = declaration.trainer
    if not trainer.xla:
        return
    train = trainer.distribution.train
    if whose := find_own(trainer, search_paths):
        yield Problem(
            "trainer.xla",
            f"{whose} has a training step of its own",
            "false; or trainer.model with a function that returns the network",
            "remove it, and wrap the step in tf.function(jit_compile=True) in your code",
            value="true",
            depends=("trainer.module_file", "trainer.model"),
        )
    if trainer.is_divided:
        divided = "trainer.model_parallel" if trainer.model_parallel else "trainer.pipeline_parallel"
        yield Problem(
            "trainer.xla",
            f"XLA compiles for one device, and {divided} puts layers on several",
            "one of the two",
            f"remove one of them: trainer.xla or {divided}",
            value="true",
            depends=(divided,),
        )
    if trainer.deterministic and trainer.model in _MAX_POOLING:
        yield Problem(
            "trainer.xla",
            f"XLA has no deterministic gradient of max-pooling, and {trainer.model} pools so",
            "false with trainer.deterministic",
            "remove one of them: trainer.xla or trainer.deterministic",
            value="true",
            depends=("trainer.deterministic", "trainer.model"),
        )
    if train.replicas > 1 and trainer.model in NORMALISING and trainer.params.get(_NORM):
        # This is for built-in networks; the dry run checks the user's own.
        yield Problem(
            "trainer.xla",
            f"with trainer.params.{_NORM} {trainer.model} normalises by the batch of all replicas, and XLA compiles "
            "what one replica computes by itself",
            "false; or one replica; or a network whose replicas talk through their gradients alone",
            f"remove one of them: trainer.xla or trainer.params.{_NORM}",
            value="true",
            depends=("trainer.params", _STRATEGY),
        )
    why = ""
    if train.asynchronous:
        why = f"under {train.strategy} the weights are in other processes, where what XLA compiles cannot read them"
    elif train.nature.one_copy:
        why = f"under {train.strategy} the weights are on one device: what XLA compiles for another cannot read them"
    elif train.takes("tpu"):
        why = "on a TPU every step is compiled with XLA anyway"
    if why:
        yield Problem(
            "trainer.xla",
            why,
            f"false with {train.strategy}",
            "remove it, or choose another strategy",
            value="true",
            depends=(_STRATEGY,),
        )
