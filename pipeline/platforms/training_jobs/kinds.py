"""The kinds of objects of Kubernetes that train in pods, and what differs between them: TFJob, TrainJob, JobSet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

# An object of Kubernetes, as JSON has it.
Object = dict[str, Any]

# Annotations of ours: how many seconds the pods may take to start, and how many there are.
PENDING_TIMEOUT, PODS = "tfx-estimator/pending-timeout", "tfx-estimator/pods"
# A label of all that a pipeline has in a cluster; its value is the pipeline's name, or the job's.
PIPELINE = "tfx-estimator/pipeline"
# The `restartPolicy` of a TFJob by which the operator itself looks at exit codes.
EXIT_CODE = "ExitCode"
SUCCEEDED, FAILED = "Succeeded", "Failed"
_ENDS = {"Succeeded": SUCCEEDED, "Complete": SUCCEEDED, "Completed": SUCCEEDED, "Failed": FAILED}
# Of the pods of chief and workers: index 0 is the chief.
NODE = "node"


def notes_of(there: Object) -> dict[str, str]:
    """Returns the annotations of an object of Kubernetes."""
    return there["metadata"].get("annotations") or {}


def end_of(there: Object) -> tuple[str, Object]:
    """Returns `SUCCEEDED` or `FAILED`, and the condition that says so; empty if it goes on."""
    for condition in there.get("status", {}).get("conditions", ()):
        if condition["type"] in _ENDS and condition["status"] == "True":
            return _ENDS[condition["type"]], condition
    return "", {}


def state_of(there: Object) -> str:
    """Returns the last condition that holds; empty if none does yet."""
    conditions = [each["type"] for each in there.get("status", {}).get("conditions", ()) if each["status"] == "True"]
    return conditions[-1] if conditions else ""


@dataclass(frozen=True)
class Kind:
    """A kind, as Kubernetes knows it.

    Args:
        name: `TFJob`.
        section: The key of `deploy` that declares it.
        container: Of its pods.
        job_label: The label by which its pods name it.
        install: What a cluster without it lacks.
        suffix: The longest that a pod's name has after the job's.
    """

    name: str
    group: str
    version: str
    plural: str
    section: str
    container: str
    job_label: str
    install: str
    suffix: str = "-evaluator-0-0-01234"

    @property
    def api_version(self) -> str:
        """Its group and version."""
        return f"{self.group}/{self.version}"

    def option(self, key: str) -> str:
        """Returns the path of an option in the declaration."""
        return f"deploy.{self.section}.{key}"

    # What follows is how TrainJobs and JobSets are: each type of pods is a Job, whose controller restarts them.

    def task(self, pod: Object) -> str:
        """Returns which task a pod is: `worker-0`."""
        role = pod["metadata"].get("labels", {}).get("jobset.sigs.k8s.io/replicatedjob-name", "pod")
        index = notes_of(pod).get("batch.kubernetes.io/job-completion-index", "?")
        if role != NODE or not index.isdecimal():
            return f"{role}-{index}"
        return f"worker-{int(index) - 1}" if int(index) else "chief-0"

    def role(self, process: str) -> str:
        """Returns the type of a process's pods, as of `section.TrainingJob.role`."""
        return NODE if self.container == NODE and process in ("chief", "worker") else process

    def owns(self, pod: Object, uid: str) -> bool:
        """Is it a pod of the object of this uid; one of an earlier object has gone before this one was made."""
        return True

    def wanted(self, there: Object) -> int:
        """How many pods there are to be."""
        return int(notes_of(there).get(PODS, 1))

    def restarts(self, there: Object) -> tuple[str, float]:
        """Returns the policy of its pods, and after how many restarts it has to be ended by whoever follows it."""
        return EXIT_CODE, math.inf

    def is_suspended(self, there: Object) -> bool:
        """Does a queue hold it back."""
        return bool(there["spec"].get("suspend"))

    @property
    def limits(self) -> str:
        """What may have ended one whose pods would have been started again."""
        return f" (see {self.option('backoff_limit')} and active_deadline_seconds)"


class _TfJob(Kind):
    def task(self, pod: Object) -> str:
        labels = pod["metadata"].get("labels", {})
        kind, index = (labels.get(f"training.kubeflow.org/replica-{each}") for each in ("type", "index"))
        return f"{kind or 'pod'}-{index or '?'}"

    def owns(self, pod: Object, uid: str) -> bool:
        return any(each["uid"] == uid for each in pod["metadata"].get("ownerReferences") or ())

    def wanted(self, there: Object) -> int:
        return sum(each.get("replicas", 1) for each in there["spec"]["tfReplicaSpecs"].values())

    def restarts(self, there: Object) -> tuple[str, float]:
        policies = {each["restartPolicy"] for each in there["spec"]["tfReplicaSpecs"].values()}
        policy = EXIT_CODE if EXIT_CODE in policies else "Never" if policies == {"Never"} else ""
        # With the policy ExitCode the operator starts pods again without end.
        # Source: https://github.com/kubeflow/trainer/issues/2045.
        limit = _run_policy(there).get("backoffLimit", math.inf) if policy == EXIT_CODE else math.inf
        return policy, limit

    def is_suspended(self, there: Object) -> bool:
        return bool(_run_policy(there).get("suspend"))


def _run_policy(there: Object) -> dict[str, Any]:
    return there["spec"].get("runPolicy", {})


_OF_JOBSET = "jobset.sigs.k8s.io/jobset-name"
TF_JOB = _TfJob(
    "TFJob",
    "kubeflow.org",
    "v1",
    "tfjobs",
    "tfjob",
    # The name that the operator looks for.
    "tensorflow",
    "training.kubeflow.org/job-name",
    "the Kubeflow training operator 1.x",
    "-evaluator-0",
)
TRAIN_JOB = Kind(
    "TrainJob",
    "trainer.kubeflow.org",
    "v1alpha1",
    "trainjobs",
    "trainjob",
    NODE,
    _OF_JOBSET,
    "Kubeflow Trainer 2, or set deploy.trainjob.kind to JobSet",
)
JOB_SET = Kind("JobSet", "jobset.x-k8s.io", "v1alpha2", "jobsets", "trainjob", NODE, _OF_JOBSET, "JobSet")
BY_NAME = {each.name: each for each in (TF_JOB, TRAIN_JOB, JOB_SET)}
