"""A declaration that was loaded, and what is known of it besides."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from tfx_estimator.pipeline.base.text import one_line
from tfx_estimator.pipeline.config.declaration import Declaration
from tfx_estimator.pipeline.config.distribution import Distribution
from tfx_estimator.pipeline.config.problems import to_error
from tfx_estimator.pipeline.config.rules.case import Case
from tfx_estimator.pipeline.config.rules.distribution import DISTRIBUTION
from tfx_estimator.pipeline.config.rules.rule import broken
from tfx_estimator.pipeline.config.rules.step import PARTS, PRECISION, XLA
from tfx_estimator.pipeline.config.rules.training import RUNTIME
from tfx_estimator.pipeline.config.tune_checks import refuse_others_cluster
from tfx_estimator.pipeline.user_source import loader


@dataclass(frozen=True)
class Loaded:
    """A declaration that was loaded and checked.

    Args:
        declaration: Its values, paths absolute.
        origins: Where each value came from, by dotted path: `default`, `file:line`, `preset:line`, `--set`; with what
            was derived from it.
        source: The preset or file, as the user named it.
        file: The file that was read.
        search_paths: Folders where the user's modules are looked for before `sys.path`: the declaration's and the
            current one.
        notes: What the user should know and need not change at once.
        warnings: What was declared and has no effect, as far as the code's text tells.
        declared: Dotted paths of what the user wrote down himself: no defaults, nothing of a preset.
    """

    declaration: Declaration
    origins: Mapping[str, str]
    source: str
    file: str
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
        """Checks the declaration once more, when it is known how many tasks there are.

        Args:
            joins: Whether this process is a task of somebody else's cluster.

        Raises:
            DeclarationError: The declaration cannot be trained by so many tasks, or by those of others.
        """
        if joins and self.declaration.tune is not None:
            raise refuse_others_cluster()
        trainer = self.declaration.trainer.copy(update={"distribution": distribution})
        declaration = self.declaration.copy(update={"trainer": trainer})
        rules = (*DISTRIBUTION, *PARTS, *RUNTIME, *PRECISION, *XLA)
        problems = broken(rules, Case(declaration, self.search_paths))
        if found := [dataclasses.replace(each, where=self.origins.get(each.path, "")) for each in problems]:
            raise to_error(found, self.source)
