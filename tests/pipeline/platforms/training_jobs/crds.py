"""The CRDs of JobSet v1alpha2 and Kubeflow Trainer v1alpha1 for tests: the fields that training jobs use.

Pods are as the API server has them, any; an unknown field of the rest is dropped, as Kubernetes does. Rules in CEL are
left out: the API server of the tests is older than these.

Source: https://github.com/kubernetes-sigs/jobset/blob/main/config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml,
https://github.com/kubeflow/trainer/tree/master/manifests/base/crds.
"""

from __future__ import annotations

from typing import Any

_Schema = dict[str, Any]
_TEXT, _WHOLE, _FLAG = {"type": "string"}, {"type": "integer", "format": "int32"}, {"type": "boolean"}
_ANY: _Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TEXTS: _Schema = {"type": "object", "additionalProperties": _TEXT}


def _of(required: str = "", **properties: _Schema) -> _Schema:
    return {"type": "object", "properties": properties, **({"required": required.split()} if required else {})}


def _list(of: _Schema) -> _Schema:
    return {"type": "array", "items": of}


def _one_of(*words: str) -> _Schema:
    return {**_TEXT, "enum": list(words)}


_EXIT_CODES = _of(
    "operator values",
    containerName=_TEXT,
    operator=_one_of("In", "NotIn"),
    values={**_list(_WHOLE), "maxItems": 255, "x-kubernetes-list-type": "set"},
)
_FAILURE_RULE = _of(
    "action",
    action=_one_of("FailJob", "FailIndex", "Ignore", "Count"),
    onExitCodes=_EXIT_CODES,
    onPodConditions=_list(_of("type", type=_TEXT, status=_TEXT)),
)
_METADATA = _of(labels=_TEXTS, annotations=_TEXTS)
_JOB = _of(
    "template",
    activeDeadlineSeconds={"type": "integer", "format": "int64"},
    backoffLimitPerIndex={**_WHOLE, "minimum": 0},
    maxFailedIndexes={**_WHOLE, "minimum": 0},
    completionMode=_TEXT,
    completions=_WHOLE,
    parallelism=_WHOLE,
    podFailurePolicy=_of("rules", rules={**_list(_FAILURE_RULE), "maxItems": 20}),
    template=_of(metadata=_ANY, spec=_ANY),
)
_REPLICATED_JOB = _of("name template", name=_TEXT, replicas=_WHOLE, template=_of(metadata=_METADATA, spec=_JOB))
_JOB_SET = _of(
    replicatedJobs=_list(_REPLICATED_JOB),
    network=_of(enableDNSHostnames=_FLAG, publishNotReadyAddresses=_FLAG, subdomain=_TEXT),
    successPolicy=_of("operator", operator=_one_of("All", "Any"), targetReplicatedJobs=_list(_TEXT)),
    failurePolicy=_of(maxRestarts=_WHOLE),
    suspend=_FLAG,
    ttlSecondsAfterFinished={**_WHOLE, "minimum": 0},
)
_RUNTIME = _of(mlPolicy=_of(numNodes=_WHOLE), template={**_of(metadata=_METADATA, spec=_JOB_SET), "minProperties": 1})
_TRAIN_JOB = _of(
    "runtimeRef",
    runtimeRef=_of(
        "name",
        name={**_TEXT, "minLength": 1, "maxLength": 253},
        apiGroup={**_TEXT, "default": "trainer.kubeflow.org"},
        kind={**_TEXT, "default": "ClusterTrainingRuntime"},
    ),
    trainer=_of(
        image={**_TEXT, "maxLength": 500}, command=_list(_TEXT), args=_list(_TEXT), env=_list(_ANY), numNodes=_WHOLE
    ),
    suspend={**_FLAG, "default": False},
    managedBy={**_TEXT, "default": "trainer.kubeflow.org/trainjob-controller"},
)
_CONDITION = _of(
    "lastTransitionTime message reason status type",
    lastTransitionTime={**_TEXT, "format": "date-time"},
    message={**_TEXT, "maxLength": 32768},
    reason={**_TEXT, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
    status=_one_of("True", "False", "Unknown"),
    type=_TEXT,
)
_STATUS = _of(conditions=_list(_CONDITION))


def _crd(group: str, version: str, kind: str, spec: _Schema, status: bool = True) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    whole = _of(
        apiVersion=_TEXT, kind=_TEXT, metadata={"type": "object"}, spec=spec, **({"status": _STATUS} if status else {})
    )
    schema = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": whole}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [{**schema, **({"subresources": {"status": {}}} if status else {})}],
        },
    }


CRDS = (
    _crd("jobset.x-k8s.io", "v1alpha2", "JobSet", _JOB_SET),
    _crd("trainer.kubeflow.org", "v1alpha1", "TrainingRuntime", _RUNTIME, status=False),
    _crd("trainer.kubeflow.org", "v1alpha1", "TrainJob", _TRAIN_JOB),
)
