"""Credentials, which belong into no compiled file: found by what they are called, and never shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tfx_estimator.pipeline.config.deploy import DeploySection
from tfx_estimator.pipeline.config.paths import is_address
from tfx_estimator.pipeline.config.problems import Problem

IN_THE_FILE = "it would stand in the compiled file, for all to read"
_NAMES = r"secret|passw|(access|api|private)[_-]?key|connection[_-]?string"
# TOKENIZERS_PARALLELISM is none.
_CREDENTIAL = re.compile(rf"{_NAMES}|token(?!iz)", re.IGNORECASE)
# For trainer.params, which may name a network's own tokens, as in `pool_token: mean`.
_OF_A_SERVICE = re.compile(
    rf"{_NAMES}|(access|api|auth|bearer|github|gitlab|hf|hub|huggingface|oauth|refresh|wandb)[_-]?tokens?$",
    re.IGNORECASE,
)
_LONG = re.compile(r"\S{16,}")
# Words such as sentencepiece_unigram are no credentials.
_WORDS = re.compile(r"[A-Za-z]{1,15}([_./-][A-Za-z]{1,15})+")
# Nor are special tokens such as <pad> and [CLS].
_SPECIAL = re.compile(r"<.*>|\[.*\]")
# The ends of names whose value is the path of a file, such as a mounted Secret.
_OF_A_FILE = re.compile(r"[_-](paths?|files?|file_?names?|dirs?|director(y|ies)|folders?)$", re.IGNORECASE)
_HIDDEN = "…"


def is_credential(name: str, value: str, deploy: DeploySection) -> bool:
    """Tells whether a value is one that nobody else should read, by what it is called.

    Args:
        name: Of a variable or a flag.
        value: What leads to a file that is mounted is none; of others that begin with `/`, Base64 makes some.
        deploy: Where the steps run.
    """
    return bool(_CREDENTIAL.search(name)) and not _leads_to_a_file(name, value, deploy)


def check_credentials(params: Mapping[str, Any], options: tuple[str, ...], deploy: DeploySection) -> Iterator[Problem]:
    """Finds credentials among what a compiled file holds beside `deploy.env`.

    Args:
        params: `trainer.params`.
        options: `beam.options`.
        deploy: Where the steps run.
    """
    expected = "an account, or a Secret's file"
    entries = _texts(("trainer", "params"), params)
    for path in dict.fromkeys(path for path, value in entries if _is_credential_of_code(path[-1], value, deploy)):
        todo = "read it in your code, of a file of deploy.secrets; if it is no credential, rename it"
        yield Problem(".".join(path), IN_THE_FILE, expected, todo)
    for option, shown in zip(options, shown_options(options)):
        if is_credential(*flag_of(option), deploy):
            todo = "remove it: deploy.service_account, deploy.secrets"
            yield Problem("beam.options", IN_THE_FILE, expected, todo, value=shown)


def flag_of(option: str) -> tuple[str, str]:
    """Returns the name of one of Beam's options, and its value.

    Args:
        option: `--name=value`.
    """
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


def _is_credential_of_code(name: str, value: str, deploy: DeploySection) -> bool:
    if not _CREDENTIAL.search(name) or _SPECIAL.fullmatch(value) or _leads_to_a_file(name, value, deploy):
        return False
    if _OF_A_SERVICE.search(name):
        return True
    is_place = is_address(value) and "@" not in value
    return bool(_LONG.fullmatch(value)) and not (_WORDS.fullmatch(value) or is_place)


def _leads_to_a_file(name: str, value: str, deploy: DeploySection) -> bool:
    return bool(_OF_A_FILE.search(name)) or (value.startswith("/") and deploy.is_provided(value))


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
