"""A pipeline as one task of Airflow: on the worker, in a pod, or on a service."""

from datetime import datetime, timedelta

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from kubernetes.client import models as k8s

WORK = k8s.V1PersistentVolumeClaimVolumeSource(claim_name="runs")
# The second try resumes from the last checkpoint; two runs of one pipeline at once would be refused.
TRIES = {"retries": 2, "retry_delay": timedelta(minutes=1)}

with DAG("mine", schedule="@daily", start_date=datetime(2026, 1, 1), max_active_runs=1, default_args=TRIES):
    # On the worker: of an environment of its own, as Airflow's packages and TFX's exclude each other.
    BashOperator(
        task_id="here",
        bash_command="/opt/tfx-estimator/bin/tfx-estimator run /data/mine.yaml --workdir /data/runs --require-blessing",
        skip_on_exit_code=7,
    )
    KubernetesPodOperator(
        task_id="pod",
        image="REGISTRY/tfx-estimator@sha256:DIGEST",
        arguments=["run", "/work/mine.yaml"],  # of the image's entry point
        security_context=k8s.V1PodSecurityContext(run_as_user=10001, fs_group=10001),
        volumes=[k8s.V1Volume(name="runs", persistent_volume_claim=WORK)],
        volume_mounts=[k8s.V1VolumeMount(name="runs", mount_path="/work")],
    )
    # On a service: the same submitted again is found, and not started twice.
    BashOperator(
        task_id="service",
        bash_command="tfx-estimator submit /data/mine.yaml --target vertex --yes --follow --folder /data/submitted",
    )
