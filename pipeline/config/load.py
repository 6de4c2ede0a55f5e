"""Loads a declaration: a preset or a YAML file plus overrides; checks everything, and shows all errors at once."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.draft import Draft, read_source
from tfx_estimator.pipeline.config.explain import find_field
from tfx_estimator.pipeline.config.notes import find_warnings, note_data
from tfx_estimator.pipeline.config.problems import OVERRIDE, to_error
from tfx_estimator.pipeline.config.rules.deploy import find_target, find_unused_resources, note_deployment
from tfx_estimator.pipeline.config.rules.distribution import DISTRIBUTION
from tfx_estimator.pipeline.config.rules.rule import Case, broken
from tfx_estimator.pipeline.config.rules.step import PARTS, PRECISION, XLA
from tfx_estimator.pipeline.config.rules.training import RUNTIME
from tfx_estimator.pipeline.config.travel_checks import note_travel
from tfx_estimator.pipeline.config.tune_checks import external_cluster_error
from tfx_estimator.pipeline.config.yaml_text import Path, leaves
from tfx_estimator.pipeline.user_source import loader

PRESET = "preset "


@dataclass(frozen=True)
class Loaded:
    """A loaded, checked declaration.

    Args:
        declaration: Its values, paths absolute.
        origins: Where each value came from, by dotted path: `default`, `file:line`, `preset:line`, `--set`; plus any
            derived value.
        source: The preset or file, as the user named it; several are joined by `+`.
        files: The files that were read; `-` is standard input.
        search_paths: Folders searched for the user's modules before `sys.path`: the declaration's, those of
            later files first, and the current one.
        notes: What the user should know but need not change.
        warnings: Declared values without effect, as far as the code's text tells.
        declared: Dotted paths that the user wrote: no defaults, nothing from a preset.
        rerun: Components that are run again, whatever is cached.
    """

    declaration: Declaration
    origins: Mapping[str, str]
    source: str
    files: tuple[str, ...]
    search_paths: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    rerun: tuple[str, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes and warnings, a line each."""
        kinds = (("note", self.notes), ("warning", self.warnings))
        return tuple(f"{kind}: {one_line(text)}" for kind, texts in kinds for text in texts)

    def make_importable(self) -> None:
        """Adds the search paths to Python's import path, without hiding other modules."""
        loader.install(self.search_paths)

    def check_cluster(self, distribution: Distribution, joins: bool = False) -> None:
        """Checks again once the number of tasks is known; `joins`: this process joins an external cluster."""
        if joins and self.declaration.tune is not None:
            raise external_cluster_error()
        trainer = self.declaration.trainer.copy(update={"distribution": distribution})
        declaration = self.declaration.copy(update={"trainer": trainer})
        rules = (*DISTRIBUTION, *PARTS, *RUNTIME, *PRECISION, *XLA)
        problems = broken(rules, Case(declaration, self.search_paths))
        if found := [dataclasses.replace(each, where=self.origins.get(each.path, "")) for each in problems]:
            raise to_error(found, self.source)


def load(source: str | os.PathLike[str], overrides: Sequence[str] = (), target: str = "") -> Loaded:
    """Loads a declaration.

    Relative paths in a file are relative to the file's folder; in presets, overrides and standard input, to the
    current one. `~` is the home folder. `${NAME}` in a file or an override is an environment variable.

    Args:
        source: A preset's name, or a YAML file; `-` is standard input. Several joined by `+` are merged; later ones
            override.
        overrides: `key.path=value` each, the value as YAML; the last one for a key wins.
        target: Deployment target: vertex, kubeflow, trainjob or tfjob; empty for this machine.

    Raises:
        DeclarationError: The declaration is invalid; the message lists all problems.
    """
    target = find_target(target)
    text = read_source(os.fspath(source))
    draft = Draft(text)
    for override in overrides:
        draft.override(override)
    changed = draft.resolve_paths()
    case = draft.validate(target)
    if draft.problems:
        # Notes are shown with the problems, so that all can be fixed at once.
        notes = tuple(note_deployment(case))
        raise to_error(draft.sorted_problems(), text.source, target, notes)
    origins = _origins(case.declaration, draft, changed)
    declared = _declared(case.declaration, origins, draft)
    found = (*find_warnings(case, declared), *find_unused_resources(case, declared))
    warnings = tuple(f"{origins[path]}  {what}" for path, what in found)
    notes = (*note_deployment(case), *note_travel(case), *note_data(case))
    files = tuple(part.file for part in text.parts)
    return Loaded(case.declaration, origins, text.source, files, draft.search_paths, notes, warnings, declared)


def _origins(declaration: Declaration, draft: Draft, changed: set[Path]) -> dict[str, str]:
    derived = declaration.derived()
    origins = {}
    for path, _ in leaves(declaration.dict()):
        dotted, origin = ".".join(path), draft.origin(path)
        if path in changed:
            origin += ", made absolute"
        if dotted in derived:
            origin += f", derived: {derived[dotted]}"
        origins[dotted] = origin
    return origins


def _declared(declaration: Declaration, origins: Mapping[str, str], draft: Draft) -> tuple[str, ...]:
    """Returns what the user chose: overrides, and values that differ from the default and are not a preset's."""
    values = {".".join(path): (path, value) for path, value in leaves(declaration.dict()) if draft.is_written(path)}

    def is_chosen(dotted: str) -> bool:
        path, value = values[dotted]
        known = find_field(path)
        is_default = known is not None and value == known.default
        return origins[dotted].startswith(OVERRIDE.strip()) or not (is_default or origins[dotted].startswith(PRESET))

    return tuple(filter(is_chosen, values))
