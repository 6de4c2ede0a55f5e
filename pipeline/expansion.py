"""What a Kubernetes node does with `$` in a container's command, arguments and variables before it starts.

Source: https://github.com/kubernetes/kubernetes/blob/v1.28.0/third_party/forked/golang/expansion/expand.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

# What is not left as it is: of a variable that is not known the reference stays.
EXPANDED = ("$$", "$(")
# Any other character after `$` is read with it.
_READ = re.compile(r"\$(?:(\$)|\(([^)]*)\)|.)", re.DOTALL)


def quoted(text: str) -> str:
    """Returns what is this text once it was expanded.

    Args:
        text: As the process shall have it.
    """
    return text.replace("$", "$$")


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Expands a word as a node does.

    Args:
        text: As the manifest has it.
        variables: That the container has.
    """

    def value(found: re.Match) -> str:
        if found[1]:
            return "$"
        return found[0] if found[2] is None else variables.get(found[2], found[0])

    return _READ.sub(value, text)


def variables_of(container: Mapping[str, Any], known: Mapping[str, str] = {}) -> dict[str, str]:
    """Returns the variables that a manifest's container declares, expanded, each by those before it.

    Args:
        container: With `env`; what has its value from elsewhere is left out.
        known: That the node sets by itself.
    """
    told: dict[str, str] = {}
    for each in container.get("env", ()):
        if "valueFrom" not in each:
            told[each["name"]] = expanded(each.get("value", ""), {**known, **told})
    return told


def words_of(container: Mapping[str, Any], variables: Mapping[str, str]) -> list[str]:
    """Returns the command and the arguments of a manifest's container, expanded.

    Args:
        container: With `command` and `args`.
        variables: That it has.
    """
    told: Iterable[str] = (*container.get("command", ()), *container.get("args", ()))
    return [expanded(word, variables) for word in told]
