"""Rules of a run_fn, which trains, evaluates and saves by itself: options that it cannot take."""

from __future__ import annotations

from tfx_estimator.pipeline.config.rules.rule import STRATEGY, Case, Rule, When, given

_PATH, _MODULE_FILE = "trainer.distribution", ("trainer.module_file",)


def _refused(path: str, when: When, why: str, todo: str = "remove it") -> Rule:
    return Rule(path, when, why, todo, "an option that a run_fn takes; or a trainer_fn", _MODULE_FILE)


def _trains_estimator(case: Case) -> dict[str, str]:
    if not case.train.distributes or not case.run_fn_estimator:
        return {}
    if case.train.is_cluster:
        return {"alone": "its chief would train alone, and export nothing"}
    return {"alone": "it would silently train on one device"}


# For a run_fn: rules of `trainer.distribution`.
RUN_FN_DISTRIBUTION = given(
    lambda case: case.distribution.distributes,
    _refused(
        STRATEGY,
        _trains_estimator,
        "this run_fn trains an Estimator ({run_fn_estimator}): {alone}",
        "move what makes the Estimator and its specs into a `def trainer_fn(fn_args, schema)`",
    ),
    _refused(
        STRATEGY,
        lambda case: case.train.traits.on_tpu and not _trains_estimator(case),
        "a run_fn connects to its TPU by itself, so it cannot use this strategy",
        "make the strategy {train.strategy} inside the run_fn, and remove it here",
    ),
    _refused(
        f"{_PATH}.eval.strategy",
        lambda case: case.distribution.eval.distributes,
        "a run_fn evaluates by itself, under its training strategy",
    ),
    _refused(
        f"{_PATH}.evaluator",
        lambda case: case.distribution.evaluator and case.train.is_cluster,
        "a run_fn evaluates by itself, so an evaluator task would do nothing",
    ),
)


def _does_itself(key: str, why: str, instead: str) -> Rule:
    todo = f"remove it, and {instead} inside the run_fn; or name a trainer_fn"
    return Rule(f"trainer.{key}", lambda case: bool(getattr(case.trainer, key)), why, todo, depends=_MODULE_FILE)


# Likewise: rules of `trainer`.
TRAINS_ITSELF = (
    _does_itself("keep_best", "a run_fn evaluates and saves by itself", "use Keras's ModelCheckpoint"),
    _does_itself("early_stopping", "a run_fn evaluates and stops by itself", "use Keras's EarlyStopping"),
    _does_itself("profile", "a run_fn runs its own steps", "call tf.profiler.experimental.start and stop"),
    _does_itself("warm_start", "a run_fn makes its own model and its initial weights", "load the weights"),
    _does_itself("freeze", "a run_fn trains what it makes", "set trainable=False"),
)

RUN_FN = given(lambda case: case.is_run_fn, *RUN_FN_DISTRIBUTION, *TRAINS_ITSELF)
