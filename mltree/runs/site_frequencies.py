"""Site-specific state frequencies (PMSF), from a file or from a mixture on a guide tree.

Wang, Minh, Susko & Roger (2018, Syst. Biol. 67:216-235). The mixture is computed once, on the guide
tree; the search has one class a site, with the exchangeabilities of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mltree.data.patterns import (
    compress_parts,
    read_site_frequencies,
    site_frequencies_of,
    site_frequencies_text,
)
from mltree.likelihood.categories import class_posteriors, class_weights_of
from mltree.likelihood.likelihood import TreeLikelihood
from mltree.models.eigen import site_systems
from mltree.models.grammar import format_model
from mltree.models.partitioned import PartitionModel
from mltree.models.portable import product
from mltree.models.substitution import Mixed, Model, Profiles
from mltree.program.cases import Case
from mltree.runs.engines import Resources, Workload, open_engines
from mltree.runs.problem import Problem
from mltree.runs.trees import fit_topology, read_tree
from mltree.system.arrays import Float64
from mltree.system.errors import InputError, ModelError
from mltree.system.events import Emit, Notice, ignore
from mltree.system.values import Value
from mltree.tree.topology import Tree

# IQ-TREE's files of class probabilities and site frequencies. The posterior probability P(m | i)
# that site i is of class m, of weight w_m and likelihood L_im, gives posterior mean frequencies:
#
#     P(m | i) = w_m L_im / sum_c w_c L_ic,    frequencies of site i = sum_m P(m | i) frequencies_m

SITE_PROBABILITIES, SITE_FREQUENCIES = "siteprob", "sitefreq"
"""Kinds of files."""


def check_classes(problem: Problem) -> None:
    """Make sure that sites have classes: there is one model, a mixture.

    Raises: InputError: they have none.
    """
    if problem.model.n_parts > 1:
        raise InputError(
            "classes of sites are those of one model, not of parts",
            hint="leave out --site-prob and --site-freq, or the partition file",
        )
    if problem.model.lone.mixture is None:
        raise InputError(
            f"{problem.model.lone.name} has no classes of sites",
            hint="--site-prob and --site-freq are for mixtures, such as LG+C20+F+G4",
        )


class SiteClasses(Value, eq=False):
    """Posterior probabilities of a mixture's classes at every site of a tree."""

    posteriors: Float64
    """f64[sites, M]: posterior probabilities."""
    frequencies: Float64
    """f64[M, S]: state frequencies of the classes."""

    @classmethod
    def of(
        cls, likelihood: TreeLikelihood, tree: Tree, model: PartitionModel, problem: Problem
    ) -> SiteClasses:
        """Classes of an alignment's sites."""
        (arrays,) = model.arrays()
        lnls = likelihood.class_log_likelihoods(tree, Case((arrays,)))
        posteriors = class_posteriors(lnls, class_weights_of(arrays))
        return cls(problem.by_site(posteriors.T), arrays.frequencies)

    def texts(self, kinds: Sequence[str]) -> dict[str, str]:
        """Contents of the files of these kinds."""
        made = {SITE_PROBABILITIES: self._probabilities, SITE_FREQUENCIES: self._frequencies}
        return {kind: made[kind]() for kind in kinds}

    def _frequencies(self) -> str:
        return site_frequencies_text(self.site_frequencies)

    def _probabilities(self) -> str:
        """The posteriors in the format of IQ-TREE's -wspm."""
        names = (f"p{number}" for number in range(1, self.posteriors.shape[1] + 1))
        rows = (
            "\t".join([str(site), *(f"{value:.6g}" for value in row)])
            for site, row in enumerate(self.posteriors.tolist(), 1)
        )
        return "\n".join(["\t".join(["Site", *names]), *rows]) + "\n"

    @property
    def site_frequencies(self) -> Float64:
        """f64[sites, S]: posterior mean site frequencies."""
        return product(self.posteriors, self.frequencies)


class SiteFrequencies(Value):
    """Source of site frequencies: a file, or a guide tree."""

    file: str | None = None
    guide: str | None = None
    """Tree on which the mixture is fitted."""

    @property
    def files(self) -> list[str]:
        """Names that may be input files."""
        return [name for name in (self.file, self.guide) if name is not None]

    def given_to(self, problem: Problem, resources: Resources, emit: Emit) -> Problem:
        """The problem with these site frequencies, under the model without its mixture.

        Raises:
            InputError: a file cannot be used.
            ModelError: the model, or the pair of options, does not allow site frequencies.
        """
        if self.file is None and self.guide is None:
            return problem
        if self.file is not None and self.guide is not None:
            raise ModelError(
                "frequencies of sites are from --site-freqs or from --guide-tree, not from both"
            )
        model = _checked(problem)
        if self.file is not None:
            states = model.n_states
            frequencies = read_site_frequencies(self.file, states, problem.n_sites)
            if model.rate_classes and not model.rates_fixed:
                raise ModelError(
                    f"model {model.name} estimates exchangeabilities, which --site-freqs cannot",
                    hint="use LG, WAG ..., or give them in braces; --guide-tree estimates them",
                )
            return _with_frequencies(problem, model, frequencies)
        return self._on_guide(problem, model, resources, emit)

    def _on_guide(
        self, problem: Problem, model: Model, resources: Resources, emit: Emit
    ) -> Problem:
        assert self.guide is not None
        if model.mixture is None:
            raise ModelError(
                f"{model.name} has no classes, which --guide-tree takes frequencies of sites from",
                hint="use a mixture, such as LG+C20+F+G4, or give --site-freqs",
            )
        tree = read_tree(self.guide, problem, emit)
        engines = open_engines(resources, Workload.of(problem), ignore)
        fit = fit_topology(
            engines.likelihood, tree, problem.model, ignore,
            optimise_parameters=True, optimise_lengths=True,
        )  # fmt: skip
        emit(
            Notice(
                f"frequencies of sites are from {format_model(fit.model.lone)} on the guide "
                f"tree: lnL {fit.lnl:.3f}"
            )
        )
        classes = SiteClasses.of(engines.exact, fit.tree, fit.model, problem)
        text = site_frequencies_text(classes.site_frequencies)  # as a file gives them back
        frequencies = site_frequencies_of(text, model.n_states, problem.n_sites, self.guide)
        held = replace(model, rates=fit.model.lone.rates, rates_fixed=True)
        return _with_frequencies(problem, held, frequencies)


def frequencies_file(problem: Problem) -> dict[str, str]:
    """The site frequencies' file, by kind; empty if sites have none."""
    if problem.data is not None or problem.patterns.systems is None:
        return {}
    of_sites = problem.by_site(problem.patterns.systems.frequencies)
    return {SITE_FREQUENCIES: site_frequencies_text(of_sites)}


def _checked(problem: Problem) -> Model:
    """The model of a problem that allows site frequencies.

    Raises: ModelError: the problem does not allow them.
    """
    if problem.data is not None:
        raise ModelError("frequencies of sites are for one alignment, not for parts")
    model = problem.model.lone
    mixture = model.mixture
    has_classes = mixture is None or isinstance(mixture, Profiles)
    if isinstance(mixture, Mixed):
        has_classes = mixture.is_linked
    if not has_classes or model.codon is not None:
        raise ModelError(
            f"frequencies of sites need one set of exchangeabilities, and {model.name} has others",
            hint="use a model such as LG+C20+F+G4",
        )
    if problem.model.has_site_rates or model.ascertainment is not None:
        raise ModelError("frequencies of sites do not go with +PSR or +ASC", hint="use +G4")
    return model


def _with_frequencies(problem: Problem, model: Model, frequencies: Float64) -> Problem:
    """The problem with frequencies f64 [sites, S], which tell patterns apart like characters do."""
    before = problem.patterns
    _, kinds = np.unique(frequencies, axis=0, return_inverse=True)
    patterns = compress_parts(
        before.taxa, before.expand(), before.alphabet, (before.n_sites,), kinds.ravel()
    )
    of_pattern = np.empty((patterns.n_patterns, model.n_states))
    of_pattern[patterns.site_pattern] = frequencies
    patterns = replace(patterns, systems=site_systems(model.rates, of_pattern))
    alone = replace(model, mixture=None, frequency_mode="model")
    return replace(problem, groups=(patterns,), model=PartitionModel((alone,)))
