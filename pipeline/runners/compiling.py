"""Compiles a declaration for a platform: the file to submit, and the wheels of the user's modules."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

import yaml

from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError
from tfx_estimator.pipeline.base.files import write_whole, writing
from tfx_estimator.pipeline.config import Loaded
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.folders import PipelineFolders
from tfx_estimator.pipeline.platforms.registry import BY_NAME
from tfx_estimator.pipeline.platforms.services import compiler_of
from tfx_estimator.pipeline.runners import entry
from tfx_estimator.pipeline.travelling import user_targets
from tfx_estimator.pipeline.user_source.pack import Packed, pack


@dataclass(frozen=True)
class Compiled:
    """A compiled pipeline.

    Args:
        text: The contents of the file to submit: JSON or YAML.
        modules: The user's own modules, one wheel for each set of steps with the same modules.
        modules_uri: The folder from which the steps fetch them.
        path: The file that TFX's runner wrote, without our additions; TFX's CLI expects the result there.
    """

    text: str
    modules: tuple[Packed, ...]
    modules_uri: str
    path: str


def compile_declaration(loaded: Loaded, target: str, folder: Optional[str] = None) -> Compiled:
    """Compiles a declaration.

    Args:
        loaded: Loaded for this target.
        target: One of `registry.ALL_TARGETS`.
        folder: For the file of TFX's runner; None is a temporary one.

    Raises:
        DataError: The data set cannot be opened.
        PipelineError: Its bucket does not exist.
        DeclarationError: A module of the user's cannot be packed.
    """
    declaration, platform = loaded.declaration, BY_NAME[target]
    targets = user_targets(declaration)
    if not platform.runs_steps:
        code = [each for step in targets.values() for each in step]
        # The modules are part of the file.
        documents = compiler_of(target).compile_declaration(declaration, target, pack(code, loaded.search_paths))
        return Compiled(text_of(documents, platform.file), (), "", "")
    from tfx_estimator.pipeline.build import create_pipeline
    from tfx_estimator.pipeline.runners.buckets import check_buckets

    # The bucket of the pipeline root is not checked: only the service has to reach it.
    check_buckets((declaration.data.dataset, declaration.data.data_dir, declaration.data.table_path))
    loaded.make_importable()
    modules = {step: packed for step, code in targets.items() if (packed := pack(code, loaded.search_paths))}
    folders = PipelineFolders((declaration.deploy or DeploySection()).pipeline_root or "", declaration.name)
    args = (create_pipeline(loaded, folders, target=target), declaration, target, folders.home, modules)
    with tempfile.TemporaryDirectory(prefix="tfx-estimator-") if folder is None else nullcontext(folder) as place:
        documents, path = compiler_of(target).compile_pipeline(*args, place)
    wheels = tuple(dict.fromkeys(modules.values()))
    return Compiled(text_of(documents, platform.file), wheels, os.path.join(folders.home, entry.FOLDER), path)


def text_of(documents: list[dict[str, Any]], file: str) -> str:
    """Returns the contents of a compiled file: JSON if its name ends in json, else YAML."""
    if file.endswith("json"):
        return json.dumps(documents[0], indent=2, sort_keys=True) + "\n"
    return yaml.dump_all(documents, sort_keys=True, Dumper=_Dumper, width=120)


class _Dumper(yaml.SafeDumper):
    """Writes repeated objects in full, as not every parser knows `&id001`; and texts of several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        """Writes texts of several lines as blocks."""
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    def represent_items(self, items: list[Any]) -> yaml.SequenceNode:
        """Writes lists of integers in one line, because those of exit codes are long."""
        numbers = bool(items) and all(type(each) is int for each in items)
        return self.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=numbers)


_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_representer(list, _Dumper.represent_items)


def deliver(compiled: Compiled, loaded: Loaded, target: str, file: Path, folder: Path) -> list[str]:
    """Writes the file to submit, and the wheels of the user's modules, each atomically.

    Args:
        target: One of `registry.ALL_TARGETS`.
        file: The file to write or replace.
        folder: For the wheels.

    Returns:
        Lines for the user.

    Raises:
        TfxEstimatorError: A file cannot be written.
    """
    contents: dict[Path, Union[str, bytes]] = {folder / packed.name: packed.data for packed in compiled.modules}
    contents[file] = compiled.text
    for path, content in contents.items():
        with writing(str(path)):
            write_whole(path, content, named=True)
    declaration, platform = loaded.declaration, BY_NAME[target]
    lines = [f"wrote {file}: {declaration.name} for {target}"]
    for packed in compiled.modules:
        lines.append(f"wrote {folder / packed.name}: your own modules, {', '.join(packed.modules)}")
        lines.append(f"    copy it, before the pipeline runs, to {compiled.modules_uri}/{packed.name}")
    lines += [f"    {line}" for line in compiler_of(target).instructions(declaration, target, file)]
    if declaration.data.data_dir is None and declaration.data.dataset not in ("", "digits"):
        who = "the step TfdsExampleGen" if platform.runs_steps else "the chief"
        lines.append(f"    note: data.data_dir is null: {who} downloads the data set itself")
    return lines


def upload(compiled: Compiled, folder: str, pipeline_root: str) -> list[str]:
    """Copies missing wheels of a compiled pipeline to its folder; returns the new files.

    Args:
        folder: For the wheels, if the pipeline's folder is in a volume that is not mounted here.
        pipeline_root: Of the steps.

    Raises:
        DeclarationError: The pipeline's folder is in a volume that is not mounted here.
        PipelineError: They cannot be written.
    """
    if not compiled.modules:
        return []
    place = compiled.modules_uri
    if not is_address(place) and not os.path.isdir(pipeline_root):
        for packed in compiled.modules:
            with writing(path := os.path.join(folder, packed.name)):
                write_whole(path, packed.data)
        raise DeclarationError(
            f"your own modules belong in {place}, and this machine has no folder {pipeline_root}",
            expected="the volume mounted here at the same path, or the modules in it already",
            todo=f"copy the wheels in {folder} to {place}, and submit again with --modules-there; "
            "or name a bucket: deploy.pipeline_root",
        )
    from tfx.dsl.io import fileio

    from tfx_estimator.components import files
    from tfx_estimator.pipeline.runners.buckets import check_buckets

    check_buckets([place])
    copied = []
    try:
        fileio.makedirs(place)
        for packed in compiled.modules:
            path = os.path.join(place, packed.name)
            if not _is_there(path, packed.sha256):
                files.write_whole(path, packed.data)
                copied.append(path)
    except Exception as error:  # file systems have errors of their own
        raise PipelineError(
            f"your own modules cannot be written to {place}: {error}",
            expected="a folder that this account may write",
            todo="see deploy.pipeline_root; or copy them by other means, and submit with --modules-there",
        ) from error
    return copied


def _is_there(path: str, sha256: str) -> bool:
    from tfx.dsl.io import fileio

    if not fileio.exists(path):
        return False
    with fileio.open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest() == sha256
