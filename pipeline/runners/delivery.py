"""What was compiled, as files, and what the user does with them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Union

from tfx_estimator.components.trainer.tfjob.manifest import PIPELINE, job_name
from tfx_estimator.pipeline.base.files import write_whole, writing
from tfx_estimator.pipeline.base.targets import KUBEFLOW, KUBEFLOW_V2, TFJOB, VERTEX
from tfx_estimator.pipeline.config import Loaded
from tfx_estimator.pipeline.config.tfjob import TfJob
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.runners.compiling import Compiled
from tfx_estimator.pipeline.services.kubernetes import kubectl


def deliver(compiled: Compiled, loaded: Loaded, target: str, file: Path, folder: Path) -> list[str]:
    """Writes the file for the service, and the user's own modules; each whole or not at all.

    Args:
        target: One of `targets.ALL_TARGETS`.
        file: The file to write; one that is there is replaced.
        folder: For the modules.

    Returns:
        What to say of it, line by line.

    Raises:
        TfxEstimatorError: Something cannot be written.
    """
    contents: dict[Path, Union[str, bytes]] = {folder / packed.name: packed.data for packed in compiled.modules}
    contents[file] = compiled.text
    for path, content in contents.items():
        with writing(str(path)):
            write_whole(path, content, named=True)
    return _instructions(compiled, loaded, target, file, folder)


def _instructions(compiled: Compiled, loaded: Loaded, target: str, file: Path, folder: Path) -> list[str]:
    lines = [f"wrote {file}: {loaded.declaration.name} for {target}"]
    for packed in compiled.modules:
        lines.append(f"wrote {folder / packed.name}: your own modules, {', '.join(packed.modules)}")
        lines.append(f"    copy it, before the pipeline runs, to {compiled.modules_uri}/{packed.name}")
    deploy = loaded.declaration.deploy
    if target == VERTEX and deploy is not None:
        account = f", as {deploy.service_account}" if deploy.service_account else ""
        lines.append(f"    submit it to project {deploy.project}, region {deploy.region}{account}")
    if target == KUBEFLOW:
        lines.append("    submit it by `submit`, or upload it to Kubeflow Pipelines and start a run of it there")
    if target == TFJOB:
        job = deploy.tfjob if deploy else TfJob()
        name = job_name(loaded.declaration.name)
        # A TFJob that is there, also an ended one, does not start by being applied again. In the foreground: the next
        # one's pods have the names of those that go.
        # By its name: that of an earlier version has no label.
        delete = f"delete tfjob {name} --ignore-not-found --cascade=foreground --wait"
        delete_map = f"delete configmap --selector {PIPELINE}={name}"
        apply = f"apply --filename {shlex.quote(str(file))}"
        deletes = [kubectl(each, job.context, job.namespace) for each in (delete, delete_map)]
        start = " && ".join([*deletes, kubectl(apply, job.context)])
        lines.append(f"    start it, in place of an earlier one: {start}")
        lines.append(f"    see it run: {kubectl(f'logs --follow {name}-chief-0', job.context, job.namespace)}")
        lines.append("    note: its chief runs every step, with the resources of deploy.tfjob.replicas.chief")
    if target == KUBEFLOW_V2:
        home = PipelineFolders((deploy and deploy.pipeline_root) or "", loaded.declaration.name)
        lines.append(f"    submit it by `submit`, or upload it, and give each run the pipeline root {home.root}")
        lines.append(
            "    note: no model is compared with an earlier one, and evaluator.max_accuracy_drop has no effect: "
            "Kubeflow Pipelines 2 has no resolvers"
        )
    if loaded.declaration.data.data_dir is None and loaded.declaration.data.dataset != "digits":
        who = "the chief" if target == TFJOB else "the step TfdsExampleGen"
        lines.append(f"    note: data.data_dir is null: {who} downloads the data set by itself")
    return lines
