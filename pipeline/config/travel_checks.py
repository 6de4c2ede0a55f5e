"""Checks of what leaves this machine: the user's modules, which are packed, and credentials, which must not."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.paths import is_path
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.rules.rule import Case
from tfx_estimator.pipeline.config.yaml_text import texts
from tfx_estimator.pipeline.platforms.rules import rules_of
from tfx_estimator.pipeline.user_source.fingerprint import find_root
from tfx_estimator.pipeline.user_source.needs import find_needs
from tfx_estimator.pipeline.user_source.pack import find_obstacles, pack
from tfx_estimator.pipeline.user_source.packages import distributions_of, is_of_image


def named_code(declaration: Declaration) -> dict[str, str]:
    """Returns the code that a declaration names, for `pack`, by dotted path."""
    data, transform, trainer = declaration.data, declaration.transform, declaration.trainer
    # A TFDS name may have a version after the colon: `mnist:3.0.1`.
    is_module = data.dataset.partition(":")[2].isidentifier()
    builder = {"data.dataset": data.dataset} if is_module and not is_path(data.dataset) else {}
    return {
        **builder,
        f"transform.{'module_file' if transform.module_file is not None else 'preprocessing_fn'}": transform.target,
        f"trainer.{'module_file' if trainer.module_file is not None else 'model'}": trainer.target,
    }


def check_travel(case: Case) -> Iterator[Problem]:
    """Finds user code that cannot be packed for the machines that run the pipeline or its training."""
    code, platform, search_paths = _travelling(case), case.platform, case.search_paths
    together: list[str] = []
    seen: set[str] = set()
    for path, each in code.items():
        try:
            find_root(each, search_paths)
        except DeclarationError:
            continue  # reported by the check of the path
        together.append(each)
        # Each step imports its own package; without separate steps, all code is in one.
        for found in find_obstacles([each] if platform.runs_steps else together, search_paths):
            if found.what not in seen:
                seen.add(found.what)
                yield Problem(path, found.what, found.expected, found.todo, value=each)
    if case.target and not platform.runs_steps and not seen and len(together) == len(code):
        yield from rules_of(case.target).check_size(case.declaration, pack(together, search_paths), path, each)


def note_travel(case: Case) -> Iterator[str]:
    """Notes the packages that the image needs in addition to tfx-estimator."""
    needs: dict[str, str] = {}
    for each in _travelling(case).values():
        needs |= find_needs(each, case.search_paths)
    if others := sorted(name for name in needs if not is_of_image(name)):
        named = (f"{'/'.join(distributions_of(name)) or name} ({needs[name]})" for name in others)
        yield f"the image must also have the packages that your modules import: {', '.join(named)}"


def _travelling(case: Case) -> dict[str, str]:
    return named_code(case.declaration) if case.target else {}


_NAMES = r"secret|passw|(access|api|private)[_-]?key|connection[_-]?string"
# Except TOKENIZERS_PARALLELISM.
_CREDENTIAL = re.compile(rf"{_NAMES}|token(?!iz)", re.IGNORECASE)
# For trainer.params, where a token may be the network's, as in `pool_token: mean`.
_OF_A_SERVICE = re.compile(
    rf"{_NAMES}|(access|api|auth|bearer|github|gitlab|hf|hub|huggingface|oauth|refresh|wandb)[_-]?tokens?$", re.I
)
# A value that looks like a key, such as ghp_8Hw4Zc1Lq9Vt5Xe2.
_RANDOM = re.compile(r"(?=[A-Za-z]*\d)[A-Za-z0-9]{16}")
# Suffixes of names whose value is a path, such as that of a mounted Secret.
_OF_A_FILE = re.compile(r"[_-](paths?|files?|file_?names?|dirs?|director(y|ies)|folders?)$", re.IGNORECASE)


def is_credential(name: str, value: str, deploy: DeploySection, names: re.Pattern[str] = _CREDENTIAL) -> bool:
    """Returns whether a variable or flag holds a credential, by its name.

    The path of a mounted file is none; any other value that begins with `/` may be Base64.
    """
    is_file = _OF_A_FILE.search(name) or (value.startswith("/") and deploy.is_provided(value))
    return bool(names.search(name)) and not is_file


def check_credentials(case: Case) -> Iterator[Problem]:
    """Finds credentials in values that a compiled file or a training job would contain."""
    deploy = case.deploy
    if not case.target:
        return
    found: dict[str, None] = {}
    for place, value in texts(case.trainer.params, ("trainer", "params")):
        # An item of a list has the list's name.
        keys = [key for key in place if not key.isdigit()]
        if is_credential(keys[-1], value, deploy, _CREDENTIAL if _RANDOM.search(value) else _OF_A_SERVICE):
            found[".".join(keys)] = None
    found |= {f"deploy.env.{name}": None for name, value in deploy.env.items() if is_credential(name, value, deploy)}
    flags = (re.split(r"[=\s]", each, maxsplit=1) for each in case.beam.options)
    if any(is_credential(name, "".join(value), deploy) for name, *value in flags):
        found["beam.options"] = None
    for path in found:
        todo = "remove it, and read a Secret that deploy.pod_patch mounts; or if it is no credential, rename it"
        what = "it would be readable in the compiled file, or in the cluster's records of the job"
        yield Problem(path, what, "deploy.service_account, or a Secret's file", todo)
