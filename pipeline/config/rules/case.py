"""The facts that rules ask of: a declaration, and what follows from it."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any, Optional

from tfx_estimator.pipeline.config.code_checks import find_own
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.distribution import Distribution, Strategy, TrainStrategy, VariablePartitioner
from tfx_estimator.pipeline.config.parallel import ModelParallel, PipelineParallel
from tfx_estimator.pipeline.config.trainer import TrainerSection
from tfx_estimator.pipeline.platforms.registry import BY_NAME
from tfx_estimator.pipeline.user_source.trainer_functions import RUN_FN, RunFn, functions_of, read_run_fn

# In a cluster that somebody else started, one of these variables is always set.
_OF_OTHERS = ("TF_CONFIG", "SLURM_PROCID")


class Case:
    """A declaration, and facts of it, each found when it is first asked for. Sections are attributes: `case.trainer`.

    Args:
        search_paths: Folders where the user's modules are looked for before `sys.path`.
        target: Where the pipeline is to be deployed; empty if it runs on this machine.
    """

    def __init__(self, declaration: Declaration, search_paths: Sequence[str] = (), target: str = "") -> None:
        self.declaration = declaration
        self.search_paths = search_paths
        self.target, self.platform = target, BY_NAME[target]

    @classmethod
    def of_trainer(cls, trainer: TrainerSection) -> Case:
        """A case of which there is one section only."""
        return cls(Declaration.construct(trainer=trainer))

    @classmethod
    def of_distribution(cls, distribution: Distribution) -> Case:
        """A case of which the distribution alone is known: of a component of somebody's own pipeline."""
        return cls.of_trainer(TrainerSection.construct(distribution=distribution))

    def __getattr__(self, section: str) -> Any:
        if section.startswith("_"):
            raise AttributeError(section)
        return getattr(self.declaration, section)

    @property
    def trainer(self) -> TrainerSection:
        """The section."""
        return self.declaration.trainer

    @property
    def deploy(self) -> DeploySection:
        """The section; with its defaults where there is none."""
        return self.declaration.deploy or DeploySection()

    @property
    def layers(self) -> ModelParallel:
        """The section `trainer.model_parallel`, under a rule that asks whether there is one."""
        assert self.trainer.model_parallel is not None
        return self.trainer.model_parallel

    @property
    def stages(self) -> PipelineParallel:
        """The section `trainer.pipeline_parallel`, likewise."""
        assert self.trainer.pipeline_parallel is not None
        return self.trainer.pipeline_parallel

    @property
    def partitioner(self) -> VariablePartitioner:
        """The section `trainer.distribution.train.variable_partitioner`, likewise."""
        assert self.train.variable_partitioner is not None
        return self.train.variable_partitioner

    @property
    def distribution(self) -> Distribution:
        """The section `trainer.distribution`."""
        return self.trainer.distribution

    @property
    def train(self) -> TrainStrategy:
        """The section `trainer.distribution.train`."""
        return self.distribution.train

    @functools.cached_property
    def own(self) -> str:
        """Whose network and step are not the declaration's, to begin a sentence with; empty where they are."""
        return find_own(self.trainer, self.search_paths)

    @functools.cached_property
    def functions(self) -> tuple[str, ...]:
        """The functions of the module file, the one that TFX calls first."""
        file = self.trainer.module_file
        return tuple(functions_of(file) or ()) if file else ()

    @property
    def is_run_fn(self) -> bool:
        """Is a run_fn called."""
        return self.functions[:1] == (RUN_FN,)

    @functools.cached_property
    def run_fn(self) -> RunFn:
        """What the text of a module file's run_fn tells."""
        file = self.trainer.module_file
        return read_run_fn(file, self.search_paths) if file and self.is_run_fn else RunFn()

    @functools.cached_property
    def trainer_fn(self) -> str:
        """How to name the trainer_fn that there is beside a run_fn; empty where there is none."""
        module, _, name = self.run_fn.trainer_fn.rpartition(".")
        renamed = name if name == "trainer_fn" else f"{name} as trainer_fn"
        return f"name a module file with the one line: from {module} import {renamed}" if name else ""

    @property
    def is_open(self) -> bool:
        """Will the number of workers be known only when somebody else's cluster is: see `Loaded.check_cluster`."""
        return self.train.takes("workers") and not self.train.workers and others_start_it()

    @property
    def batch(self) -> Optional[int]:
        """Examples of a step's batch that each replica trains with; None where that is not known."""
        if self.is_open or misfit(self.train):
            return None
        return self.trainer.global_batch_size // in_step(self.train)


def others_start_it() -> bool:
    """Does somebody else start the cluster that this process is part of."""
    return any(os.environ.get(name, "").strip() for name in _OF_OTHERS)


def in_step(section: Strategy) -> int:
    """The replicas that share a batch, as far as they are declared."""
    workers, devices = shares(section)
    return workers * devices


def shares(section: Strategy) -> tuple[int, int]:
    """The workers that share a batch, and the declared devices of each that do."""
    # An asynchronous worker takes a whole batch. How many cores a TPU has is not known here.
    workers = section.worker_count if isinstance(section, TrainStrategy) and section.in_step else 1
    return workers, section.devices.count


def misfit(section: Strategy, path: str = "") -> Optional[dict[str, str]]:
    """Why a strategy cannot have its devices, in the words of a rule; None where it can.

    Args:
        path: Of the section.
    """
    devices, remove = section.devices, "remove the devices"
    if section.takes("tpu") and (devices.cpu or devices.gpu):
        return {"why": "the strategy tpu trains on the TPU's own cores", "mend": remove}
    if devices.cpu and devices.gpu:
        return {"why": "both cpu and gpu are given", "mend": f"remove one: --set {path}.devices.cpu=null"}
    if not section.distributes and devices.count > 1:
        why = f"the strategy {section.strategy} uses one device, not {devices.count}"
        return {"why": why, "mend": f"{remove}, or set {path}.strategy to mirrored"}
    if section.is_cluster and devices.cpu and devices.indices != (0,):
        why = f"TensorFlow uses one CPU device in each process of {section.strategy}, and ignores the others"
        return {"why": why, "mend": f"{remove}, or write cpu: 1; for more replicas raise {path}.workers"}
    return None
