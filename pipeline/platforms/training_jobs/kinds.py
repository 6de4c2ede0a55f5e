"""The Kubernetes kinds of training jobs, and their differences: TFJob, TrainJob, JobSet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

# A Kubernetes object as JSON.
Object = dict[str, Any]

# Our annotations: the seconds that pods may take to start, and the number of pods.
PENDING_TIMEOUT, PODS = "tfx-estimator/pending-timeout", "tfx-estimator/pods"
# Label of all objects of a pipeline in a cluster; the value is the name of the pipeline, or of the job.
PIPELINE = "tfx-estimator/pipeline"
# The `restartPolicy` of a TFJob whose operator evaluates exit codes.
EXIT_CODE = "ExitCode"
SUCCEEDED, FAILED = "Succeeded", "Failed"
_ENDS = {"Succeeded": SUCCEEDED, "Complete": SUCCEEDED, "Completed": SUCCEEDED, "Failed": FAILED}
# Role of the pods of chief and workers: index 0 is the chief.
NODE = "node"


def annotations_of(item: Object) -> dict[str, str]:
    """Returns an object's annotations."""
    return item["metadata"].get("annotations") or {}


def end_of(job: Object) -> tuple[str, Object]:
    """Returns `SUCCEEDED` or `FAILED`, and the condition with that state; both empty while the job runs."""
    for condition in job.get("status", {}).get("conditions", ()):
        if condition["type"] in _ENDS and condition["status"] == "True":
            return _ENDS[condition["type"]], condition
    return "", {}


def state_of(job: Object) -> str:
    """Returns the last condition that is true; empty if none is yet."""
    conditions = [each["type"] for each in job.get("status", {}).get("conditions", ()) if each["status"] == "True"]
    return conditions[-1] if conditions else ""


@dataclass(frozen=True)
class Kind:
    """A Kubernetes kind.

    Args:
        name: `TFJob`.
        section: The key of `deploy` that declares it.
        container: The container's name in its pods.
        job_label: The pods' label with the job's name.
        install: What to install in a cluster without it.
        suffix: The longest suffix of a pod's name after the job's.
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
        """Returns an option's path in the declaration."""
        return f"deploy.{self.section}.{key}"

    # The methods below hold for TrainJobs and JobSets: each role is a Job, whose controller restarts its pods.

    def task(self, pod: Object) -> str:
        """Returns a pod's task: `worker-0`."""
        role = pod["metadata"].get("labels", {}).get("jobset.sigs.k8s.io/replicatedjob-name", "pod")
        index = annotations_of(pod).get("batch.kubernetes.io/job-completion-index", "?")
        if role != NODE or not index.isdecimal():
            return f"{role}-{index}"
        return f"worker-{int(index) - 1}" if int(index) else "chief-0"

    def role(self, process: str) -> str:
        """Returns the role of a process's pods, as of `section.TrainingJob.role`."""
        return NODE if self.container == NODE and process in ("chief", "worker") else process

    def owns(self, pod: Object, uid: str) -> bool:
        """True if the pod is the job's with this uid; foreground deletion leaves no pods of an earlier job."""
        return True

    def wanted(self, job: Object) -> int:
        """Returns the expected number of pods."""
        return int(annotations_of(job).get(PODS, 1))

    def restarts(self, job: Object) -> tuple[str, float]:
        """Returns the pods' restart policy, and the number of restarts after which the follower has to end the job."""
        return EXIT_CODE, math.inf

    def is_suspended(self, job: Object) -> bool:
        """True if a queue holds it back."""
        return bool(job["spec"].get("suspend"))

    @property
    def limits(self) -> str:
        """Limits that may have ended a job whose pods could have been restarted."""
        return f" (see {self.option('backoff_limit')} and active_deadline_seconds)"


class _TfJob(Kind):
    def task(self, pod: Object) -> str:
        labels = pod["metadata"].get("labels", {})
        kind, index = (labels.get(f"training.kubeflow.org/replica-{each}") for each in ("type", "index"))
        return f"{kind or 'pod'}-{index or '?'}"

    def owns(self, pod: Object, uid: str) -> bool:
        return any(each["uid"] == uid for each in pod["metadata"].get("ownerReferences") or ())

    def wanted(self, job: Object) -> int:
        return sum(each.get("replicas", 1) for each in job["spec"]["tfReplicaSpecs"].values())

    def restarts(self, job: Object) -> tuple[str, float]:
        policies = {each["restartPolicy"] for each in job["spec"]["tfReplicaSpecs"].values()}
        policy = EXIT_CODE if EXIT_CODE in policies else "Never" if policies == {"Never"} else ""
        # With the policy ExitCode the operator restarts pods without limit.
        # Source: https://github.com/kubeflow/trainer/issues/2045.
        limit = _run_policy(job).get("backoffLimit", math.inf) if policy == EXIT_CODE else math.inf
        return policy, limit

    def is_suspended(self, job: Object) -> bool:
        return bool(_run_policy(job).get("suspend"))


def _run_policy(job: Object) -> dict[str, Any]:
    return job["spec"].get("runPolicy", {})


_OF_JOBSET = "jobset.sigs.k8s.io/jobset-name"
TF_JOB = _TfJob(
    "TFJob",
    "kubeflow.org",
    "v1",
    "tfjobs",
    "tfjob",
    # The operator expects this container name.
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
