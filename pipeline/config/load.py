"""Loads a declaration: a preset or a YAML file, overrides on top, everything checked, all errors at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from tfx_estimator.pipeline.config import read, render
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.deploy_checks import check_stack, find_idle, note_deployment
from tfx_estimator.pipeline.config.draft import OVERRIDE, Draft
from tfx_estimator.pipeline.config.explain import find_field
from tfx_estimator.pipeline.config.loaded import Loaded
from tfx_estimator.pipeline.config.notes import decays_twice, find_misplaced, note_data, note_profile, note_runtime
from tfx_estimator.pipeline.config.overrides import parse_overrides
from tfx_estimator.pipeline.config.paths import note_dataset
from tfx_estimator.pipeline.config.problems import to_error
from tfx_estimator.pipeline.config.travel_checks import note_travel
from tfx_estimator.pipeline.config.tune_checks import note_tune
from tfx_estimator.pipeline.config.unread import find_unread, word_unread
from tfx_estimator.pipeline.config.yaml_text import Path

PRESET = "preset "


def load(source: str | os.PathLike[str], overrides: Sequence[str] = (), target: str = "") -> Loaded:
    """Loads a declaration.

    Relative paths in a file are relative to the file's folder; in presets and overrides, to the current one. `~` is
    the home folder.

    Args:
        source: A preset's name, or a YAML file.
        overrides: `key.path=value` each, the value as YAML; of two for one key the later wins.
        target: Where the pipeline is to be deployed, one of `targets.ALL_TARGETS`; empty if it runs on this machine.

    Returns:
        The declaration, and where each value came from.

    Raises:
        DeclarationError: Something is wrong; the message lists everything that is.
    """
    check_stack(target)
    text = read.read_source(os.fspath(source))
    draft = Draft(text)
    parsed, problems = parse_overrides(overrides)
    draft.problems += problems
    for override in parsed:
        draft.override(override)
    changed = draft.resolve_paths()
    names = tuple(draft.modernise_names())
    declaration = draft.validate(target)
    if draft.problems or declaration is None:
        # Notes are shown with the problems, so that all can be mended at once.
        told = () if declaration is None else tuple(note_deployment(declaration, target))
        raise to_error(draft.sorted_problems(), text.source, target, told)
    origins = _origins(declaration, draft, changed)
    declared = _declared(declaration, origins, draft)
    warnings = _warnings(declaration, origins, declared, draft.search_paths)
    warnings += tuple(f"{origins[path]}  {what}" for path, what in find_idle(declaration, declared, target))
    deployed = (
        *note_deployment(declaration, target),
        *note_travel(declaration, draft.search_paths, target),
        *note_data(declaration, target),
    )
    notes = (
        *names,
        *note_dataset(declaration),
        *note_runtime(declaration, target),
        *note_profile(declaration),
        *note_tune(declaration),
        *deployed,
    )
    return Loaded(declaration, origins, text.source, text.file, draft.search_paths, notes, warnings, declared)


def _origins(declaration: Declaration, draft: Draft, changed: set[Path]) -> dict[str, str]:
    derived = declaration.derived()
    origins = {}
    for path, _ in render.leaves(declaration.dict()):
        dotted, origin = ".".join(path), draft.origin(path)
        if path in changed:
            origin += ", made absolute"
        if dotted in derived:
            origin += f", derived: {derived[dotted]}"
        origins[dotted] = origin
    return origins


def _declared(declaration: Declaration, origins: Mapping[str, str], draft: Draft) -> tuple[str, ...]:
    values = {path: value for path, value in render.leaves(declaration.dict()) if draft.is_written(path)}
    # A section without a gap is as `show` prints it, and as a TFJob's pods are given it: a default in it is nobody's
    # wish.
    with_gaps = {path[:-1] for path, _ in render.leaves(declaration.dict()) if path not in values}

    def is_wish(path: Path, origin: str) -> bool:
        known = find_field(path)
        is_default = known is not None and values[path] == known.default
        return not origin.startswith(PRESET) and (
            not is_default or origin.startswith(OVERRIDE) or path[:-1] in with_gaps
        )

    return tuple(dotted for path in values if is_wish(path, origins[dotted := ".".join(path)]))


def _warnings(
    declaration: Declaration, origins: Mapping[str, str], declared: Sequence[str], search_paths: Sequence[str]
) -> tuple[str, ...]:
    found = []
    if unread := list(find_unread(declaration, declared, search_paths)):
        found.append(f"{origins[unread[0]]}  {word_unread(declaration.trainer, unread)}")
    found += [f"{origins[path]}  {said}" for path, said in find_misplaced(declaration, declared)]
    if twice := decays_twice(declaration.trainer.optimizer):
        found.append(f"{origins['trainer.optimizer.weight_decay']}  {twice}")
    return tuple(found)
