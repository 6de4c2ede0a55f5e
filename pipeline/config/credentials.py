"""Credentials, which belong into no compiled file: found by what they are called, and never shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.problems import Problem

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
_HIDDEN = "…"


def is_credential(name: str, value: str, deploy: DeploySection, called: re.Pattern[str] = _CREDENTIAL) -> bool:
    """Tells whether a value is one that nobody else should read, by what it is called.

    Args:
        name: Of a variable or a flag.
        value: What leads to a file that is mounted is none; of others that begin with `/`, Base64 makes some.
        deploy: Where the steps run.
        called: What such a name holds.
    """
    leads_to_a_file = _OF_A_FILE.search(name) or (value.startswith("/") and deploy.is_provided(value))
    return bool(called.search(name)) and not leads_to_a_file


def check_credentials(declaration: Declaration, target: str) -> Iterator[Problem]:
    """Finds credentials in what a compiled file holds, or what is sent to those who train elsewhere."""
    deploy = declaration.deploy or DeploySection()
    if not target and not deploy.trains_elsewhere:
        return
    found = {}
    for keys, value in _texts(("trainer", "params"), declaration.trainer.params):
        if is_credential(keys[-1], value, deploy, _CREDENTIAL if _RANDOM.search(value) else _OF_A_SERVICE):
            found[".".join(keys)] = ""
    found |= {f"deploy.env.{name}": "" for name, value in deploy.env.items() if is_credential(name, value, deploy)}
    options = declaration.beam.options
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
    """Returns Beam's options as a message may show them: without the values of what is called like a credential.

    Args:
        options: As they were written: it may be that two of them, or one of many words, should be `--name=value`.
    """
    found, hides = [], False
    for option in options:
        words = []
        for word in option.split():
            if hides and not word.startswith("--"):
                continue
            flag = word.partition("=")[0]
            hides = bool(_CREDENTIAL.search(flag))
            words.append(flag if hides else word)
        found.append(" ".join(words) or (_HIDDEN if option.split() else option))
    return found


def _texts(path: tuple[str, ...], value: object) -> Iterator[tuple[tuple[str, ...], str]]:
    """Texts, with the path of the nearest key: an item of a list has none of its own."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _texts((*path, str(key)), each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(path, each)
