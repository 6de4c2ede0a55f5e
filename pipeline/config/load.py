"""Loads a declaration: a preset or a YAML file, overrides on top, everything checked, all errors at once."""

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
from tfx_estimator.pipeline.config.notes import find_warnings, note_data, note_tune
from tfx_estimator.pipeline.config.problems import OVERRIDE, to_error
from tfx_estimator.pipeline.config.rules.deploy import find_idle, find_target, note_deployment
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
    """A declaration that was loaded and checked.

    Args:
        declaration: Its values, paths absolute.
        origins: Where each value came from, by dotted path: `default`, `file:line`, `preset:line`, `--set`; with what
            was derived from it.
        source: The preset or file, as the user named it; of several with `+` between.
        files: The files that were read; `-` is standard input.
        search_paths: Folders where the user's modules are looked for before `sys.path`: the declaration's, those of
            later files first, and the current one.
        notes: What the user should know and need not change at once.
        warnings: What was declared and has no effect, as far as the code's text tells.
        declared: Dotted paths of what the user wrote down himself: no defaults, nothing of a preset.
    """

    declaration: Declaration
    origins: Mapping[str, str]
    source: str
    files: tuple[str, ...]
    search_paths: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes and warnings, each as one line that says which of both it is."""
        told = (("note", self.notes), ("warning", self.warnings))
        return tuple(f"{kind}: {one_line(text)}" for kind, texts in told for text in texts)

    def make_importable(self) -> None:
        """Has Python look for the user's modules where they were found, without hiding others."""
        loader.install(self.search_paths)

    def check_cluster(self, distribution: Distribution, joins: bool = False) -> None:
        """Checks once more, when it is known how many tasks there are; `joins`: of a cluster of somebody else's."""
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
    current one. `~` is the home folder. `${NAME}` in a file or an override is a variable of the environment.

    Args:
        source: A preset's name, or a YAML file; `-` is standard input. Several with `+` between are laid over each
            other, the later ones override.
        overrides: `key.path=value` each, the value as YAML; of two for one key the later wins.
        target: Where the pipeline is to be deployed, one of `registry.ALL_TARGETS`; empty if it runs on this machine.

    Returns:
        The declaration, and where each value came from.

    Raises:
        DeclarationError: Something is wrong; the message lists everything that is.
    """
    target = find_target(target)
    text = read_source(os.fspath(source))
    draft = Draft(text)
    for override in overrides:
        draft.override(override)
    changed = draft.resolve_paths()
    declaration = draft.validate(target)
    if draft.problems:
        # Notes are shown with the problems, so that all can be mended at once.
        told = tuple(note_deployment(Case(declaration, target=target)))
        raise to_error(draft.sorted_problems(), text.source, target, told)
    case = Case(declaration, draft.search_paths, target)
    origins = _origins(declaration, draft, changed)
    declared = _declared(declaration, origins, draft)
    warned = (*find_warnings(case, declared), *find_idle(case, declared))
    warnings = tuple(f"{origins[path]}  {what}" for path, what in warned)
    notes = (*note_tune(case), *note_deployment(case), *note_travel(case), *note_data(case))
    files = tuple(part.file for part in text.parts)
    return Loaded(declaration, origins, text.source, files, draft.search_paths, notes, warnings, declared)


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
    """What somebody asked for: not of a preset, and another value than the default, unless by an override."""
    values = {".".join(path): (path, value) for path, value in leaves(declaration.dict()) if draft.is_written(path)}

    def is_wish(dotted: str) -> bool:
        path, value = values[dotted]
        known = find_field(path)
        is_default = known is not None and value == known.default
        return origins[dotted].startswith(OVERRIDE.strip()) or not (is_default or origins[dotted].startswith(PRESET))

    return tuple(filter(is_wish, values))
