"""The `trainer` section: what to train, for how long, in which batches."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Any, Literal, Optional, Union

from tfx_estimator.pipeline.config.augment import Operation, expand_operations
from tfx_estimator.pipeline.config.best import BY_METRIC, EarlyStopping, KeepBest
from tfx_estimator.pipeline.config.data import FILES, TF1
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.known import expand
from tfx_estimator.pipeline.config.optimizer import Optimizer
from tfx_estimator.pipeline.config.parallel import IN_STEPS, ModelParallel, PipelineParallel, SyncEvery
from tfx_estimator.pipeline.config.runtime import Gpu, Profile, TensorBoard, Threads, has_gpu, keep_cpus_busy
from tfx_estimator.pipeline.config.section import MAX_STEPS, Field, Limits, Section, inner, number
from tfx_estimator.pipeline.config.warm_start import WarmStart

_MAX_EPOCHS = 1_000_000
_MAX_BATCH = 1_000_000
_MAX_SECONDS = 30 * 24 * 3600
_Weight = Annotated[float, Limits(0)]


class TrainerSection(Section):
    """What to train. Exactly one of `model` and `module_file`, and of `train_steps` and `train_epochs`."""

    path: Literal["estimator", "keras", "keras_custom_loop"] = Field(
        "estimator", "how to train: tf.estimator, Keras's `fit`, or a loop around `strategy.run`"
    )
    model: Optional[str] = Field(
        None,
        "a built-in network (mnist_cnn, cifar_cnn, cifar_resnet, cifar_resnet9; of a table wide_deep, dnn, linear); or "
        "`package.module:function`: a network function; for the Keras paths, one that returns a compiled "
        "tf.keras.Model; or, for estimator, a whole model_fn",
    )
    module_file: Optional[str] = Field(None, "an existing TFX module file with `trainer_fn` or `run_fn`, unchanged")
    tf1: bool = Field(False, f"{TF1}; TensorFlow 2's behaviour is off in the training")
    # Their hashes are in the cache key.
    files: tuple[str, ...] = Field((), f"{FILES}training", operational=True)
    params: dict[str, Any] = Field({}, "further entries of your model_fn's `params`")
    train_steps: Optional[int] = number(None, 1, MAX_STEPS, "optimizer steps; this or train_epochs")
    train_epochs: Optional[float] = number(
        None,
        None,
        _MAX_EPOCHS,
        "passes over the examples, in steps of global_batch_size; this or train_steps",
        gt=0,
    )
    eval_steps: Optional[int] = number(None, 1, MAX_STEPS, "batches per evaluation; null reads each example once")
    global_batch_size: int = number(128, 1, _MAX_BATCH, "examples per step, over all replicas")
    eval_batch_size: int = number(500, 1, _MAX_BATCH, "examples per evaluation batch, over all replicas")
    gradient_accumulation: int = number(1, 1, 1000, "sequential microbatches of each replica's batch, to save memory")
    # Operational like threads: `auto` changes at most the last bits of sums; with a number, the user asserts that the
    # network has no operations across examples.
    parallel_parts: Union[Literal["auto"], int] = number(
        1,
        1,
        1024,
        "parts of each replica's batch that are computed at the same time: on CPU this is faster than "
        "several threads inside each op; `auto` is one per CPU, at most 8, for mnist_cnn and cifar_cnn",
        operational=True,
    )
    optimizer: Optimizer = inner("optimizer of the built-in model_fn")
    label_smoothing: float = number(0.0, 0, None, "label smoothing of the built-in training loss", lt=1)
    class_weights: Optional[Union[Literal["balanced"], tuple[_Weight, ...], dict[str, _Weight]]] = Field(
        None,
        "factors of the examples' training losses: one per label; or {class: factor}, others 1; "
        "or `balanced`, which gives every class the same total weight",
    )
    warm_start: Optional[WarmStart] = Field(None, "initial weights, from another training")
    freeze: tuple[str, ...] = Field(
        (), "variables that are not trained, by patterns of their names, or of their layers': ['base/*', 'block_1_*']"
    )
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = Field(
        "float32", "dtype of the network in training; variables, loss, evaluation and serving stay float32"
    )
    xla: bool = Field(False, "compile the built-in training step with XLA")
    # Operational like threads: it changes at most the last bits of sums.
    model_parallel: Optional[ModelParallel] = Field(None, "layers on several devices of one process", operational=True)
    pipeline_parallel: Optional[PipelineParallel] = Field(
        None, "stages of the network on several devices of one process, which compute microbatches concurrently"
    )
    seed: int = number(42, 0, 2**31 - 1, "seed of initial weights and of the order of examples")
    shuffle_buffer: int = number(10_000, 1, MAX_STEPS, "examples in the buffer, for files not kept in memory")
    resident_megabytes: int = number(
        512, 0, 1_000_000, "training files of up to this total size are kept in memory, and shuffled as a whole"
    )
    augment: tuple[Operation, ...] = Field(
        (), "image augmentation, in order: [random_flip, {random_crop: {padding: 4}}]", expand=expand_operations
    )
    save_checkpoints_steps: Optional[int] = number(
        None, 1, MAX_STEPS, "steps between checkpoints; null is a tenth of all, between 100 and 1,000"
    )
    keep_checkpoint_max: int = number(3, 1, 10_000, "number of newest checkpoints to keep", operational=True)
    keep_best: Optional[KeepBest] = Field(
        None, "export the best checkpoint by a metric instead of the last one; in short, `accuracy`", **BY_METRIC
    )
    early_stopping: Optional[EarlyStopping] = Field(
        None, "stop training when a metric no longer improves; in short, `average_loss`", **BY_METRIC
    )
    sync_every: Optional[SyncEvery] = Field(
        None,
        "the workers of `multi_worker_mirrored` train separately, and average their weights after this number "
        "of steps; null all-reduces gradients in each step",
        **IN_STEPS,
    )
    log_every_steps: Optional[int] = number(
        None, 1, MAX_STEPS, "steps between points in TensorBoard; null: a 50th of all, at most 100", operational=True
    )
    steps_per_execution: int = number(20, 1, 10_000, "most steps per TensorFlow call on Keras paths", operational=True)
    intra_op_threads: Optional[int] = number(None, 1, 1024, "former name of threads.intra_op", operational=True)
    # Operational: like another processor, other threads and kernels change at most the last bits of sums.
    threads: Threads = inner("TensorFlow's thread pools, in each task", operational=True)
    gpu: Gpu = inner("how each task uses its GPUs", operational=True)
    onednn: Optional[bool] = Field(None, "TF_ENABLE_ONEDNN_OPTS; null is TensorFlow's choice", operational=True)
    deterministic: bool = Field(False, "runs give bitwise equal results; nondeterministic ops fail, reading is slower")
    profile: Optional[Profile] = Field(None, "steps to profile, for TensorBoard and a summary", operational=True)
    tensorboard: TensorBoard = inner("images and histograms next to the curves", operational=True)
    start_timeout: float = number(300.0, None, _MAX_SECONDS, "seconds until the first progress", operational=True, gt=0)
    stall_timeout: float = number(
        600.0,
        None,
        _MAX_SECONDS,
        "seconds without progress; for a run_fn, without output and CPU time, or six times that without output",
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
        """Threads inside one TensorFlow op, by either name; one if parts of a batch keep the CPUs busy."""
        return self.threads.intra_op or self.intra_op_threads or (1 if keep_cpus_busy(self) else None)

    @property
    def logical_cpus(self) -> int:
        """The logical CPUs that the devices of layers and stages need; 0 if none are declared."""
        return max((each.logical_cpus for each in (self.model_parallel, self.pipeline_parallel) if each), default=0)

    @property
    def is_divided(self) -> bool:
        """True if the network is split over several devices of one process."""
        return self.model_parallel is not None or self.pipeline_parallel is not None

    @property
    def undivided(self) -> TrainerSection:
        """The section with network and batch on one device: for the export, and for counting costs."""
        return self.copy(update={"model_parallel": None, "pipeline_parallel": None, "parallel_parts": 1})

    def in_trial(self, steps: Optional[int] = None) -> TrainerSection:
        """Returns the section for a trial with a number of steps, or as declared; without what only observes."""
        length = {} if steps is None else {"train_steps": steps, "train_epochs": None}
        return self.copy(update={"profile": None, "tensorboard": TensorBoard(), **length})

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of a task, set before TensorFlow is imported, which reads most of them only then."""
        gpu = self.gpu
        values = {
            # A session's setting comes too late for the thread pool of the process.
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
        """True if TensorFlow's idle threads spin before they sleep, as by its default.

        If one CPU trains alone, they would take time from the computing threads. What a module file does is unknown.
        """
        if self.threads.spinning is not None:
            return self.threads.spinning
        return bool(self.module_file or self.is_divided or self.distribution.train.distributes or has_gpu())

    @property
    def loss_options(self) -> dict[str, Any]:
        """Arguments of `classification_loss` in training, with class weights by label."""
        return {"label_smoothing": self.label_smoothing, "class_weights": tuple(self.class_weights or ())}

    def steps_of(self, examples: int) -> int:
        """Returns the number of steps in `train_epochs`, rounded up."""
        # Exact in decimals: 0.1 is a tenth.
        return math.ceil(Fraction(str(self.train_epochs)) * examples / self.global_batch_size)

    @property
    def checkpoint_steps(self) -> int:
        """Steps between two checkpoints; derived from the steps, not the epochs, if not declared."""
        return self.save_checkpoints_steps or min(max((self.train_steps or 0) // 10, 100), 1000)

    @property
    def report_steps(self) -> int:
        """Steps between two reports of the loss; derived likewise if not declared."""
        return self.log_every_steps or min(max((self.train_steps or 0) // 50, 1), 100)
