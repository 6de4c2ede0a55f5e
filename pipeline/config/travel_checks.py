"""What leaves this machine: the user's own modules, read as text; and what should not, credentials."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.paths import is_path
from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.config.rules.rule import Case
from tfx_estimator.pipeline.config.yaml_text import texts
from tfx_estimator.pipeline.user_source.fingerprint import find_root
from tfx_estimator.pipeline.user_source.needs import find_needs
from tfx_estimator.pipeline.user_source.pack import find_obstacles, pack
from tfx_estimator.pipeline.user_source.packages import distributions_of, is_of_image


def named_code(declaration: Declaration) -> dict[str, str]:
    """Returns the code that a declaration names, as `pack` takes it, by where it is named."""
    data, transform, trainer = declaration.data, declaration.transform, declaration.trainer
    # After a colon, TFDS's names have a version: `mnist:3.0.1`.
    is_module = data.dataset.partition(":")[2].isidentifier()
    builder = {"data.dataset": data.dataset} if is_module and not is_path(data.dataset) else {}
    return {
        **builder,
        f"transform.{'module_file' if transform.module_file is not None else 'preprocessing_fn'}": transform.target,
        f"trainer.{'module_file' if trainer.module_file is not None else 'model'}": trainer.target,
    }


def check_travel(case: Case) -> Iterator[Problem]:
    """Finds what of the user's own code cannot travel to where the pipeline, or its training, runs."""
    code, platform, search_paths = _travelling(case), case.platform, case.search_paths
    together: list[str] = []
    seen: set[str] = set()
    for path, each in code.items():
        try:
            find_root(each, search_paths)
        except DeclarationError:
            continue  # told where it is checked
        together.append(each)
        # Each step has its own in a place of its own; else all is imported from one.
        for found in find_obstacles([each] if platform.runs_steps else together, search_paths):
            if found.what not in seen:
                seen.add(found.what)
                yield Problem(path, found.what, found.expected, found.todo, value=each)
    if case.target and not platform.runs_steps and not seen and len(together) == len(code):
        yield from platform.part("rules").check_size(case.declaration, pack(together, search_paths), path, each)


def note_travel(case: Case) -> Iterator[str]:
    """Says what the image must have beside this project."""
    needs = [find_needs(each, case.search_paths) for each in _travelling(case).values()]
    installed = {need.module: need for each in needs for need in each.installed}
    if others := sorted(name for name in installed if not is_of_image(name)):
        named = (f"{'/'.join(distributions_of(name)) or name} ({installed[name].where})" for name in others)
        yield f"the image must have what your modules import beside tfx-estimator: {', '.join(named)}"
    for name, need in sorted({need.module: need for each in needs for need in each.unknown}.items()):
        yield (
            f"{need.where} imports {name}, which is found nowhere but, perhaps, in a folder that your code names: "
            "it does not travel"
        )


def _travelling(case: Case) -> dict[str, str]:
    """The code that is packed, by where it is named."""
    code, trains = named_code(case.declaration), case.deploy.trains_elsewhere
    return {path: each for path, each in code.items() if case.target or (trains and path.startswith("trainer."))}


_NAMES = r"secret|passw|(access|api|private)[_-]?key|connection[_-]?string"
# TOKENIZERS_PARALLELISM is none.
_CREDENTIAL = re.compile(rf"{_NAMES}|token(?!iz)", re.IGNORECASE)
# For trainer.params, which may name a network's own tokens, as in `pool_token: mean`.
_OF_A_SERVICE = re.compile(
    rf"{_NAMES}|(access|api|auth|bearer|github|gitlab|hf|hub|huggingface|oauth|refresh|wandb)[_-]?tokens?$",
    re.IGNORECASE,
)
# What looks like a key itself, such as ghp_8Hw4Zc1Lq9Vt5Xe2.
_RANDOM = re.compile(r"(?=[A-Za-z]*\d)[A-Za-z0-9]{16}")
# The ends of names whose value is the path of a file, such as a mounted Secret.
_OF_A_FILE = re.compile(r"[_-](paths?|files?|file_?names?|dirs?|director(y|ies)|folders?)$", re.IGNORECASE)


def is_credential(name: str, value: str, deploy: DeploySection, called: re.Pattern[str] = _CREDENTIAL) -> bool:
    """Tells whether the value of a variable or a flag is one that nobody else should read, by what it is called.

    What leads to a file that is mounted is none; of others that begin with `/`, Base64 makes some.
    """
    leads_to_a_file = _OF_A_FILE.search(name) or (value.startswith("/") and deploy.is_provided(value))
    return bool(called.search(name)) and not leads_to_a_file


def check_credentials(case: Case) -> Iterator[Problem]:
    """Finds credentials in what a compiled file holds, or what is sent to those who train elsewhere."""
    deploy = case.deploy
    if not case.target and not deploy.trains_elsewhere:
        return
    found = {}
    for place, value in texts(case.trainer.params, ("trainer", "params")):
        # An item of a list is called as the list is.
        keys = [key for key in place if not key.isdigit()]
        if is_credential(keys[-1], value, deploy, _CREDENTIAL if _RANDOM.search(value) else _OF_A_SERVICE):
            found[".".join(keys)] = ""
    found |= {f"deploy.env.{name}": "" for name, value in deploy.env.items() if is_credential(name, value, deploy)}
    options = case.beam.options
    for option, shown in zip(options, shown_options(options)):
        if is_credential(*flag_of(option), deploy):
            found["beam.options"] = shown
    for path, shown in found.items():
        todo = "remove it, and read it from a file of deploy.secrets; or if it is no credential, rename it"
        what = "it would stand in the compiled file, or in what the cluster keeps, for all to read"
        yield Problem(path, what, "deploy.service_account, or a Secret's file", todo, value=shown)


def flag_of(option: str) -> tuple[str, str]:
    """Returns the name of one of Beam's options, and its value."""
    name, *value = re.split(r"[=\s]", option, maxsplit=1)
    return name, "".join(value)


def shown_options(options: Iterable[str]) -> list[str]:
    """Returns Beam's options as a message may show them: without the values of what is called like a credential."""
    # It may be that two of them, or one of many words, should be `--name=value`.
    found, hides = [], False
    for option in options:
        words = []
        for word in option.split():
            if hides and not word.startswith("--"):
                continue
            flag = word.partition("=")[0]
            hides = bool(_CREDENTIAL.search(flag))
            words.append(flag if hides else word)
        found.append(" ".join(words) or ("…" if option.split() else option))
    return found
