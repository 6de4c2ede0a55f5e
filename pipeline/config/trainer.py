"""The `trainer` section: what to train, for how long, in which batches."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Literal, Optional, Union

from tfx_estimator.pipeline.config.augment import Operation, expand_operations
from tfx_estimator.pipeline.config.best import BY_METRIC, EarlyStopping, KeepBest
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.known import expand
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.config.parallel import IN_STEPS, ModelParallel, PipelineParallel, SyncEvery
from tfx_estimator.pipeline.config.runtime import Gpu, Profile, Threads, has_gpu, keep_cpus_busy
from tfx_estimator.pipeline.config.section import MAX_STEPS, Field, Section, inner, number
from tfx_estimator.pipeline.config.warm_start import WarmStart

_MAX_EPOCHS = 1_000_000
_MAX_BATCH = 1_000_000
_MAX_SECONDS = 30 * 24 * 3600


class TrainerSection(Section):
    """What to train. Exactly one of `model` and `module_file`, and of `train_steps` and `train_epochs`."""

    path: Literal["estimator", "keras", "keras_custom_loop"] = Field(
        "estimator", "the way of training: tf.estimator, Keras's `fit`, or a loop around `strategy.run`"
    )
    model: Optional[str] = Field(
        None,
        "a built-in network (mnist_cnn, cifar_cnn, cifar_resnet, cifar_resnet9); or "
        "`package.module:function`: a network function; for the Keras paths, one that returns a compiled "
        "tf.keras.Model; or, for estimator, a whole model_fn",
    )
    module_file: Optional[str] = Field(None, "an existing TFX module file with `trainer_fn` or `run_fn`, unchanged")
    params: dict[str, Any] = Field({}, "further entries of your model_fn's `params`")
    train_steps: Optional[int] = number(None, 1, MAX_STEPS, "optimizer steps; this or train_epochs")
    train_epochs: Optional[float] = number(
        None, None, _MAX_EPOCHS, "passes over the training examples, which may be a fraction; this or train_steps", gt=0
    )
    eval_steps: Optional[int] = number(
        None, 1, MAX_STEPS, "batches per evaluation; null reads every example exactly once"
    )
    global_batch_size: int = number(128, 1, _MAX_BATCH, "examples per step, over all replicas")
    eval_batch_size: int = number(500, 1, _MAX_BATCH, "examples per evaluation batch, over all replicas")
    gradient_accumulation: int = number(
        1, 1, 1000, "parts of each replica's batch that are computed one after the other, to need less memory"
    )
    # Operational like threads: `auto` changes at most the last bits of sums, and a number says that each example is
    # computed by itself.
    parallel_parts: Union[Literal["auto"], int] = number(
        1,
        1,
        1024,
        "parts of each replica's batch that are computed at the same time: on CPU that is faster than "
        "several threads inside each op; `auto` is one a CPU, for mnist_cnn and cifar_cnn",
        operational=True,
    )
    optimizer: Optimizer = inner("of the built-in model_fn")
    label_smoothing: float = number(
        0.0, 0, None, "part of the target that all classes share, in the built-in training loss", lt=1
    )
    class_weights: Optional[Union[Literal["balanced"], tuple[float, ...], dict[str, float]]] = Field(
        None,
        "factors of the examples' losses in training: one for each label; or {class: factor}, others 1; "
        "or `balanced`, by which each class counts as much as another",
    )
    warm_start: Optional[WarmStart] = Field(None, "weights of another training, with which this one begins")
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = Field(
        "float32",
        "of what the network computes in training; its variables, its loss, evaluations and what is served are float32",
    )
    xla: bool = Field(False, "compile the built-in training step with XLA")
    # Operational like threads: it changes at most the last bits of sums.
    model_parallel: Optional[ModelParallel] = Field(None, "layers on several devices of one process", operational=True)
    pipeline_parallel: Optional[PipelineParallel] = Field(
        None, "stages of the network on several devices of one process, which work on parts of a batch at once"
    )
    seed: int = number(42, 0, 2**31 - 1, "of initial weights and of the order of examples")
    shuffle_buffer: int = number(10_000, 1, MAX_STEPS, "examples; for training files that are not kept in memory")
    resident_megabytes: int = number(
        512, 0, 1_000_000, "training files of up to this size together are kept in memory, and shuffled as a whole"
    )
    augment: tuple[Operation, ...] = Field(
        (),
        "how training images are varied, in this order: [random_flip, {random_crop: {padding: 4}}]",
        expand=expand_operations,
    )
    save_checkpoints_steps: Optional[int] = number(
        None, 1, MAX_STEPS, "steps; null is a tenth of all, between 100 and 1,000"
    )
    keep_checkpoint_max: int = number(3, 1, 10_000, "the newest checkpoints that are kept", operational=True)
    keep_best: Optional[KeepBest] = Field(
        None, "export the checkpoint that is best by a metric, in place of the last; in short, `accuracy`", **BY_METRIC
    )
    early_stopping: Optional[EarlyStopping] = Field(
        None, "end training when a metric improves no more; in short, `average_loss`", **BY_METRIC
    )
    sync_every: Optional[SyncEvery] = Field(
        None,
        "the workers of `multi_worker_mirrored` train by themselves, and average their weights after so "
        "many steps; null adds up gradients in each step",
        **IN_STEPS,
    )
    log_every_steps: Optional[int] = number(
        None,
        1,
        MAX_STEPS,
        "steps between two points of TensorBoard's curves; null is a fiftieth of all, at most 100",
        operational=True,
    )
    steps_per_execution: int = number(
        20, 1, 10_000, "most steps in one call of TensorFlow, on the Keras paths", operational=True
    )
    intra_op_threads: Optional[int] = number(None, 1, 1024, "what threads.intra_op was called before", operational=True)
    # Sums come out as on another processor: up to their last bits, which are no part of a model's key either.
    threads: Threads = inner("TensorFlow's, in each task", operational=True)
    gpu: Gpu = inner("how each task uses its GPUs", operational=True)
    onednn: Optional[bool] = Field(
        None,
        "oneDNN's kernels on CPU (TF_ENABLE_ONEDNN_OPTS); null is TensorFlow's choice for the processor",
        operational=True,
    )
    deterministic: bool = Field(
        False, "two runs end with equal bits; ops that cannot say so fail, and reading is slower"
    )
    profile: Optional[Profile] = Field(
        None, "steps that are profiled, for TensorBoard and as a summary; null is none", operational=True
    )
    start_timeout: float = number(
        300.0, None, _MAX_SECONDS, "seconds until the first sign of progress", operational=True, gt=0
    )
    stall_timeout: float = number(
        600.0,
        None,
        _MAX_SECONDS,
        "seconds without any progress; of a run_fn, without output or CPU time, or six times that without output",
        operational=True,
        gt=0,
    )
    distribution: Distribution = inner("strategies and devices")

    @property
    def target(self) -> str:
        """The module file, or `package.module:function` of the model."""
        return self.module_file or expand("trainer.model", self.model or "")

    @property
    def intra_op(self) -> Optional[int]:
        """Threads inside one TensorFlow op, by either name; one where parts of a batch keep the CPUs at work."""
        return self.threads.intra_op or self.intra_op_threads or (1 if keep_cpus_busy(self) else None)

    @property
    def logical_cpus(self) -> int:
        """How many logical CPUs the devices of layers and stages need; 0 where none are declared."""
        return max((each.logical_cpus for each in (self.model_parallel, self.pipeline_parallel) if each), default=0)

    @property
    def is_divided(self) -> bool:
        """Are parts of the network on several devices of one process."""
        return self.model_parallel is not None or self.pipeline_parallel is not None

    @property
    def undivided(self) -> TrainerSection:
        """The section with all of network and batch on one device: as it is exported, and as its costs are counted."""
        return self.copy(update={"model_parallel": None, "pipeline_parallel": None, "parallel_parts": 1})

    def in_trial(self, steps: Optional[int] = None) -> TrainerSection:
        """Returns the section as a trial of so many steps, or as declared: nothing is profiled, which many would be."""
        length = {} if steps is None else {"train_steps": steps, "train_epochs": None}
        return self.copy(update={"profile": None, **length})

    @property
    def environment(self) -> dict[str, str]:
        """What a task's environment says before TensorFlow is imported, which reads most of it only then."""
        gpu = self.gpu
        values = {
            # A session's own setting comes too late for the pool of threads that the process shares.
            "TF_NUM_INTRAOP_THREADS": self.intra_op,
            "TF_NUM_INTEROP_THREADS": self.threads.inter_op,
            "TF_FORCE_GPU_ALLOW_GROWTH": "true" if gpu.memory_growth else None,
            "TF_GPU_ALLOCATOR": gpu.allocator,
            "TF_GPU_THREAD_MODE": gpu.thread_mode,
            "TF_ENABLE_ONEDNN_OPTS": None if self.onednn is None else int(self.onednn),
        }
        return {name: str(value) for name, value in values.items() if value is not None}

    @property
    def spinning(self) -> bool:
        """Do TensorFlow's threads look for work for a while before they sleep, as they do by its own default.

        Where one CPU trains alone they take the time of those that compute. What a module file makes is not known.
        """
        if self.threads.spinning is not None:
            return self.threads.spinning
        return bool(self.module_file or self.is_divided or self.distribution.train.distributes or has_gpu())

    @property
    def loss_options(self) -> dict[str, Any]:
        """Arguments of `classification_loss` in training, where class weights are by label."""
        return {"label_smoothing": self.label_smoothing, "class_weights": tuple(self.class_weights or ())}

    def steps_of(self, examples: int) -> int:
        """Returns the number of steps that `train_epochs` are, the last of which may begin another epoch."""
        # Exactly, as it is written: 0.1 is a tenth here.
        return math.ceil(Fraction(str(self.train_epochs)) * examples / self.global_batch_size)

    @property
    def checkpoint_steps(self) -> int:
        """Steps between two checkpoints, derived where the declaration leaves it open: from steps, not from epochs."""
        return self.save_checkpoints_steps or min(max((self.train_steps or 0) // 10, 100), 1000)

    @property
    def report_steps(self) -> int:
        """Steps between two reports of the loss, derived where the declaration leaves it open: likewise."""
        return self.log_every_steps or min(max((self.train_steps or 0) // 50, 1), 100)
