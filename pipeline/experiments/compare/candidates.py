"""Candidates of a comparison: declarations to train, and finished runs; imports no TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfx_estimator.pipeline import presets
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config import Loaded, load
from tfx_estimator.pipeline.config.put_values import check_not_set, parse_variations, reworded
from tfx_estimator.pipeline.config.yaml_text import inline, leaves
from tfx_estimator.pipeline.report.source import Run, find_runs
from tfx_estimator.pipeline.user_source.fingerprint import fingerprint_source

FILES = JSON_FILE, HTML_FILE = "compare.json", "compare.html"
_MOST = 8  # a page has as many colours
_VARY = "--vary"


@dataclass(frozen=True)
class Candidate:
    """A declaration to train, or a finished run."""

    name: str  # unique, except among seeds of one declaration
    source: str  # a preset, a file or a folder, as the user named it
    loaded: Loaded | None = None
    run: Run | None = None
    seed: int | None = None  # for a declaration that is trained under several seeds

    @property
    def label(self) -> str:
        """A unique name."""
        return self.name if self.seed is None else f"{self.name}, seed {self.seed}"

    @property
    def home(self) -> str:
        """The pipeline's folder; empty for a declaration."""
        return self.run.home if self.run else ""

    @property
    def values(self) -> dict[str, Any]:
        """The declared values, by dotted path."""
        if self.run:
            return self.run.values
        declared = self.loaded.declaration.dict() if self.loaded else {}
        return {".".join(path): value for path, value in leaves(declared)}


def find_candidates(
    sources: Sequence[str], overrides: Sequence[str], vary: Sequence[str], repeat: int = 1
) -> list[Candidate]:
    """Finds the candidates, or the combinations of the varied values; the first is the base.

    Args:
        repeat: Number of trainings of each, under consecutive seeds from the declared one; they are adjacent in the
            result. A declaration that is named twice, also with a near seed, gets the seeds after those.
    """
    folders = [source for source in sources if _is_folder(source)]
    if not vary:
        _check_count(len(sources), "name another, or vary one: --vary trainer.path=estimator,keras")
    if len(folders) == len(sources) and (overrides or vary):
        option = _VARY if vary else "--set"
        raise DeclarationError(
            f"{option}: {one_line(sources[0])} is a folder of finished runs, which nothing can change",
            expected="a declaration, whose values can be set",
            todo=f"leave {option} out, or name a preset or a YAML file",
        )
    if folders and repeat > 1:
        raise DeclarationError(
            f"--repeat {repeat}: {one_line(folders[0])} is a folder of finished runs, which keep their seed",
            expected="declarations, which can be trained under several seeds",
            todo="name the run's declaration: declaration.yaml in the same folder",
        )
    if vary:
        found = _varied(sources, overrides, vary)
    else:
        runs = dict(zip(folders, find_runs(folders)))
        found = [
            _of_run(source, runs[source]) if source in runs else _of_declaration(source, load(source, overrides))
            for source in sources
        ]
    _check_same_examples([each for each in found if each.loaded])
    named = _with_unique_names(found)
    return named if repeat == 1 else _repeated(named, repeat)


def _repeated(candidates: Sequence[Candidate], repeat: int) -> list[Candidate]:
    """Returns each under several seeds. No two share a training, which would count twice and make them look alike."""
    found: list[Candidate] = []
    first_seeds: dict[str, list[int]] = {}  # by what else decides a training
    for each in candidates:
        first = _seed(each)
        others = first_seeds.setdefault(_training(each), [])
        # Of two that differ in the seed only, the second gets the seeds after the first's.
        if any(abs(other - first) < repeat for other in others):
            first = max(others) + repeat
        others.append(first)
        found += _under_seeds(each, range(first, first + repeat))
    return found


def _seed(candidate: Candidate) -> int:
    assert candidate.loaded
    return candidate.loaded.declaration.trainer.seed


def _training(candidate: Candidate) -> str:
    """Returns a key of all that decides a training on the same examples, except its seed."""
    assert candidate.loaded
    declaration = candidate.loaded.declaration
    trainer, _ = declaration.trainer.split()
    source = fingerprint_source(declaration.trainer.target, candidate.loaded.search_paths)
    tune = declaration.tune and declaration.tune.split()[0]
    return repr(({**trainer, "seed": None}, tune, source))


def _under_seeds(candidate: Candidate, seeds: Iterable[int]) -> list[Candidate]:
    assert candidate.loaded
    declaration = candidate.loaded.declaration
    found = []
    for seed in seeds:
        trainer = declaration.trainer.copy(update={"seed": seed})
        loaded = replace(candidate.loaded, declaration=declaration.copy(update={"trainer": trainer}))
        found.append(replace(candidate, loaded=loaded, seed=seed))
    return found


def _is_folder(source: str) -> bool:
    return source not in presets.names() and os.path.isdir(os.path.expanduser(source))


def _of_run(source: str, run: Run) -> Candidate:
    return Candidate(f"{run.name} {run.time}", source, run=run)


def _of_declaration(source: str, loaded: Loaded) -> Candidate:
    name = source if source in presets.names() else os.path.splitext(os.path.basename(source))[0]
    return Candidate(name, source, loaded=loaded)


def _varied(sources: Sequence[str], overrides: Sequence[str], vary: Sequence[str]) -> list[Candidate]:
    if len(sources) != 1:
        raise DeclarationError(
            f"{_VARY} with {len(sources)} sources",
            expected="one declaration, to compare with itself under other values",
            todo="name one, or leave --vary out",
        )
    variations = parse_variations(vary)
    check_not_set(overrides, variations[0])
    _check_count(len(variations), "vary fewer values" if variations[1:] else "vary more: trainer.seed=1,2")
    found = []
    for each in variations:
        try:
            loaded = load(sources[0], [*overrides, *each.overrides])
        except DeclarationError as error:
            raise reworded(error, each) from None
        found.append(Candidate(str(each), sources[0], loaded=loaded))
    return found


def _check_count(count: int, todo: str) -> None:
    if not 2 <= count <= _MOST:
        raise DeclarationError(
            f"there {'is' if count == 1 else 'are'} {count} to compare",
            expected=f"2 to {_MOST} declarations or finished runs",
            todo=todo,
        )


def _check_same_examples(candidates: Sequence[Candidate]) -> None:
    """Raises DeclarationError for declarations that do not train on the same materialised examples."""
    if len(candidates) < 2:
        return
    first, *others = candidates
    expected = _examples(first)
    for other in others:
        found = _examples(other)
        lines = [
            f"  {key}: {inline(expected.get(key))} in {one_line(first.source)}, {inline(found.get(key))} in "
            f"{one_line(other.source)}"
            for key in dict.fromkeys([*expected, *found])
            if expected.get(key) != found.get(key)
        ]
        if lines:
            raise DeclarationError(
                "\n".join([f"{first.name} and {other.name} are not trained on the same examples:", *lines]),
                expected="the same `data` and `transform` in all, because predictions are paired",
                todo="make them the same, with --set for example",
            )


def _examples(candidate: Candidate) -> dict[str, Any]:
    """Returns the values that decide the examples that training reads, by dotted path."""
    assert candidate.loaded
    declaration = candidate.loaded.declaration
    found = {}
    for name in ("data", "transform"):
        deciding, _ = getattr(declaration, name).split()
        found.update({".".join(path): value for path, value in leaves(deciding, (name,))})
    # The same name in two folders may mean two functions.
    found["the source of transform"] = fingerprint_source(declaration.transform.target, candidate.loaded.search_paths)
    return found


def _with_unique_names(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Makes names unique: by the whole source, or else by a number."""
    names = [one_line(each.name) for each in candidates]
    if len(set(names)) < len(names):
        names = [one_line(each.source) if names.count(name) > 1 else name for name, each in zip(names, candidates)]
    names = [f"{name} ({index})" if names.count(name) > 1 else name for index, name in enumerate(names, 1)]
    return [replace(each, name=name) for name, each in zip(names, candidates)]
