"""Replaces `tensorflow.python.distribute.estimator_training`, which TensorFlow removed in 2.16.

tensorflow-estimator uses five of its functions: they configure a RunConfig from its cluster, and run a task's part of
`train_and_evaluate`, `train` and `evaluate` by TensorFlow's distribute coordinator, which still exists.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Optional

from tensorflow.python.distribute import distribute_coordinator, distribute_coordinator_context, multi_worker_util
from tensorflow.python.training.server_lib import ClusterSpec

_STANDALONE = distribute_coordinator.CoordinatorMode.STANDALONE_CLIENT
_INDEPENDENT = distribute_coordinator.CoordinatorMode.INDEPENDENT_WORKER
_CHIEF, _WORKER, _PS, _EVALUATOR = "chief", "worker", "ps", "evaluator"


def init_run_config(config: Any, tf_config: dict[str, Any]) -> None:
    """Sets a RunConfig's task from TF_CONFIG, and whether the distribute coordinator runs it."""
    given, remote = config._experimental_distribute, None
    if given:
        remote = given.remote_cluster
        for name in ("train_distribute", "eval_distribute"):
            if strategy := getattr(given, name):
                if getattr(config, f"_{name}"):
                    raise ValueError(f"RunConfig has both {name} and experimental_distribute.{name}: give one of them")
                setattr(config, f"_{name}", strategy)
    cluster = ClusterSpec(tf_config.get("cluster", {}))
    config._init_distributed_setting_from_environment_var({})
    config._distribute_coordinator_mode = None
    if config._train_distribute and remote:
        if cluster:
            raise ValueError(
                "both TF_CONFIG and experimental_distribute.remote_cluster name a cluster: keep one of them"
            )
        config._distribute_coordinator_mode, config._cluster_spec = _STANDALONE, remote
    elif config._train_distribute and cluster and "master" not in cluster.jobs:
        # The coordinator sets the rest when it runs.
        config._distribute_coordinator_mode, config._cluster_spec = _INDEPENDENT, cluster
    else:
        config._init_distributed_setting_from_environment_var(tf_config)
        config._maybe_overwrite_session_config_for_distributed_training()


def should_run_distribute_coordinator(config: Any) -> bool:
    """Returns True if the coordinator runs this task's part of `train_and_evaluate`."""
    mode = getattr(config, "_distribute_coordinator_mode", None)
    return mode in (_STANDALONE, _INDEPENDENT) and bool(config.cluster_spec)


def train_and_evaluate(estimator: Any, train_spec: Any, eval_spec: Any, executor_cls: Callable[..., Any]) -> None:
    """Runs this task's part of `tf.estimator.train_and_evaluate`; the executor evaluates each checkpoint."""
    mode = estimator.config._distribute_coordinator_mode
    if not mode:
        raise ValueError("the RunConfig has no cluster for the distribute coordinator")

    def train(strategy: Any) -> None:
        part, is_chief = _of_task(estimator, "train", strategy)
        # With one client for all tasks, only the chief runs the hooks.
        hooks = list(train_spec.hooks) if mode == _INDEPENDENT or is_chief else []
        part.train(input_fn=train_spec.input_fn, max_steps=train_spec.max_steps, hooks=hooks)

    def evaluate(strategy: Any) -> None:
        part, _ = _of_task(estimator, "eval", strategy)
        executor_cls(part, train_spec, eval_spec)._start_continuous_evaluation()

    config = estimator.config
    # An independent worker's cluster is in TF_CONFIG.
    cluster = config.cluster_spec if mode == _STANDALONE else None
    _run(config, mode, train, config.train_distribute, cluster, (evaluate, config.eval_distribute))


def estimator_train(estimator: Any, train_distributed_fn: Callable[..., Any], hooks: list[Any]) -> Any:
    """Runs `Estimator.train` on a remote cluster, from one client."""
    return _run_alone(estimator, "train", train_distributed_fn, hooks, returns_estimator=True)


def estimator_evaluate(estimator: Any, evaluate_distributed_fn: Callable[..., Any], hooks: list[Any]) -> Any:
    """Runs `Estimator.evaluate` on a remote cluster, from one client."""
    return _run_alone(estimator, "eval", evaluate_distributed_fn, hooks, returns_estimator=False)


def _run_alone(
    estimator: Any, which: str, function: Callable[..., Any], hooks: list[Any], returns_estimator: bool
) -> Any:
    config, verb = estimator._config, "train" if which == "train" else "evaluate"
    cluster, strategy = multi_worker_util.normalize_cluster_spec(config.cluster_spec), _strategy(config, which)
    if _EVALUATOR in cluster.jobs or config._distribute_coordinator_mode != _STANDALONE:
        raise ValueError(f"Estimator.{verb} takes no cluster of TF_CONFIG: call tf.estimator.train_and_evaluate")
    if strategy.extended.experimental_between_graph:
        raise ValueError(f"Estimator.{verb} from one client does not support {type(strategy).__name__}")

    def call(of_task: Any) -> Any:
        part, is_chief = _of_task(estimator, which, of_task, keeps_mode=True)
        result = function(part, of_task, hooks if is_chief else [])
        return part if returns_estimator else result

    return _run(config, _STANDALONE, call, strategy, cluster)


def _run(
    config: Any,
    mode: str,
    call: Callable[..., Any],
    strategy: Any,
    cluster: Any,
    evaluation: tuple[Any, Any] = (None, None),
) -> Any:
    return distribute_coordinator.run_distribute_coordinator(
        call, strategy, *evaluation, mode=mode, cluster_spec=cluster, session_config=config.session_config
    )


def _strategy(config: Any, which: str) -> Any:
    return getattr(config, f"_{which}_distribute")


def _of_task(estimator: Any, which: str, strategy: Any, keeps_mode: bool = False) -> tuple[Any, bool]:
    """Returns a copy of the Estimator for the coordinator's current task, and whether that is the chief."""
    context = distribute_coordinator_context.get_current_worker_context()
    part = copy.deepcopy(estimator)
    setattr(part._config, f"_{which}_distribute", strategy)
    setattr(part, f"_{which}_distribution", strategy)
    _take_place(part._config, context)
    if not keeps_mode:
        # Otherwise it would call the coordinator again.
        part._config._distribute_coordinator_mode = None
    return part, context.is_chief


def _take_place(config: Any, context: Any) -> None:
    """Sets a RunConfig's task from the coordinator's context."""
    config._service = None
    config._cluster_spec, config._task_type, config._task_id = context.cluster_spec, context.task_type, context.task_id
    config._master = config._evaluation_master = context.master_target
    config._is_chief = context.is_chief
    config._num_ps_replicas, config._num_worker_replicas, config._global_id_in_cluster = 0, 1, 0
    if not context.cluster_spec:
        return
    if context.task_type == _EVALUATOR:
        # It runs outside of the cluster.
        config._cluster_spec, config._num_worker_replicas, config._global_id_in_cluster = ClusterSpec({}), 0, None
        return
    tasks = context.cluster_spec.as_dict()
    config._num_ps_replicas = len(tasks.get(_PS, ()))
    config._num_worker_replicas = len(tasks.get(_WORKER, ())) + len(tasks.get(_CHIEF, ()))
    config._global_id_in_cluster = _global_id(context)


def _global_id(context: Any) -> Optional[int]:
    """Returns the task's number in the cluster: the chief first, parameter servers last, as RunConfig documents it."""
    if not context.task_type:
        return 0
    jobs = sorted(context.cluster_spec.jobs, key=lambda name: (name != _CHIEF, name == _PS, name))
    before = jobs[: jobs.index(context.task_type)]
    return sum(context.cluster_spec.num_tasks(job) for job in before) + context.task_id
