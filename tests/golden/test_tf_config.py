"""TF_CONFIG of each task of a few clusters, and the interpretation of each dialect."""

from __future__ import annotations

import json

import pytest

from tfx_estimator.components.trainer.cluster.tf_config import Cluster, read, tf_configs

pytestmark = pytest.mark.golden

PORTS = [f"127.0.0.1:{port}" for port in range(2222, 2230)]
CLUSTERS = {
    "chief_and_worker": Cluster({"chief": PORTS[:1], "worker": PORTS[1:2]}),
    "chief_and_3_workers": Cluster({"chief": PORTS[:1], "worker": PORTS[1:4]}),
    "chief_worker_and_2_ps": Cluster({"chief": PORTS[:1], "worker": PORTS[1:2], "ps": PORTS[2:4]}),
}
WORKER_1 = {"type": "worker", "index": 1}
DIALECTS = {
    "master, as in TensorFlow 1": {
        "cluster": {"master": ["m:1"], "worker": ["w0:1", "w1:1"], "ps": ["p0:1"]},
        "task": {"type": "master", "index": 0},
    },
    "worker 0 is the chief, as TFJob writes it": {
        "cluster": {"worker": ["job-worker-0.ns.svc:2222", "job-worker-1.ns.svc:2222"], "ps": ["job-ps-0.ns.svc:2222"]},
        "task": WORKER_1,
        "environment": "cloud",
    },
    "the same, seen from worker 0": {
        "cluster": {"worker": ["job-worker-0.ns.svc:2222", "job-worker-1.ns.svc:2222"], "ps": ["job-ps-0.ns.svc:2222"]},
        "task": {"type": "worker", "index": 0},
        "environment": "cloud",
    },
    "an evaluator in the cluster": {
        "cluster": {"chief": ["c:1"], "worker": ["w0:1"], "evaluator": ["e:1"]},
        "task": {"type": "evaluator", "index": 0},
    },
    "managed training": {
        "cluster": {"chief": ["cmle-training-chief-0:2222"], "worker": ["cmle-training-worker-0:2222"]},
        "environment": "cloud",
        "job": {"scale_tier": "CUSTOM"},
        "task": {"type": "worker", "index": "0", "cloud": "w93a1503672d4dd09-ml", "trial": "1"},
    },
    "managed training on one machine": {
        "cluster": {"chief": ["127.0.0.1:2222"]},
        "environment": "cloud",
        "task": {"type": "chief", "index": 0, "cloud": "w93a1503672d4dd09-ml"},
    },
    "addresses by index": {
        "cluster": {"chief": {"0": "c:1"}, "worker": {"1": "w1:1", "0": "w0:1"}},
        "task": WORKER_1,
    },
    "no cluster": {"task": {"type": "worker", "index": 0}},
}


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("evaluator", [False, True])
def test_the_tf_config_of_each_task(golden, name, evaluator):
    texts = tf_configs(CLUSTERS[name], evaluator)
    # One task per line, each as written.
    lines = ",\n".join(f"  {json.dumps(task.name)}: {text}" for task, text in texts.items())
    golden(f"tf_config/{name}{'_and_evaluator' if evaluator else ''}.json", f"{{\n{lines}\n}}\n")


def test_the_interpretation_of_each_dialect(golden):
    table = {}
    for name, given in DIALECTS.items():
        config = read(json.dumps(given))
        table[name] = {"given": given, "read": config and json.loads(config.to_json())}
    golden("tf_config/dialects.json", json.dumps(table, indent=2) + "\n")
