"""The custom job of a training: what is known of it when the pipeline is compiled, and when the step runs.

Source: https://cloud.google.com/vertex-ai/docs/reference/rest/v1/CustomJobSpec.
"""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

# Property of the step: JSON of its Plan.
PLAN_KEY = "custom_job"
REPLICA, ROLES = "tfx_estimator.components.trainer.custom_job.replica", "--roles"
# A placeholder in the arguments for the pipeline's folder, which is chosen at submission.
HOME = "{home}"
# Label of a job: which step created it.
STEP_LABEL = "tfx_estimator_step"


@dataclass(frozen=True)
class Plan:
    """What the step creates, and where.

    Args:
        job: The CustomJob, as JSON has it, but for where the step's call lies and which step it is; HOME stands for the
            pipeline's folder.
    """

    project: str
    region: str
    job: dict[str, Any]

    def to_json(self) -> str:
        """Returns the property."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Reads what `to_json` wrote."""
        return cls(**json.loads(text))

    @property
    def pools(self) -> dict[str, dict[str, Any]]:
        """The `worker_pool_specs` by role, the chief's first; none of them is empty.

        The service itself takes the third for parameter servers, whatever it is.
        """
        pools = self.job["job_spec"]["worker_pool_specs"]
        words = pools[0]["container_spec"]["args"]
        return dict(zip(words[words.index(ROLES) + 1].split(","), pools))

    def to_job(self, folder: str, home: str) -> dict[str, Any]:
        """Returns the CustomJob.

        Args:
            folder: Where the step's call lies.
        """
        job = copy.deepcopy(self.job)
        for pool in job["job_spec"]["worker_pool_specs"]:
            words = pool["container_spec"]["args"]
            pool["container_spec"]["args"] = [*(word.replace(HOME, home) for word in words), "--call", folder]
        job["labels"][STEP_LABEL] = step_of(folder)
        return job


def step_of(folder: str) -> str:
    """Returns the label's value: the same for each try of a step.

    Args:
        folder: Where the step's call lies.
    """
    return hashlib.sha256(folder.encode()).hexdigest()[:40]
