"""Options of RAxML-NG, IQ-TREE, RAxML and PhyML, translated into mltree's.

Some of their options would mean something else here (``-s`` is a seed, ``-pre`` would be ``-p``
with the value ``re``), others nothing at all. A command line with one of them is not run: one line
shows it as it is written here, and says what there is no counterpart for. Its model is shown as
what the other program computes, which may have other frequencies under the same name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence, Set
from typing import NamedTuple

COMMANDS = (
    "search", "compare", "devices", "check", "run", "bootstrap", "model", "evaluate", "support",
    "consensus", "rf", "bootstop", "alrt", "test", "concordance", "report", "draw", "simulate",
    "sitelh", "convert", "ancestral",
)  # fmt: skip


class Habit(NamedTuple):
    """An option of another program."""

    program: str
    here: str = ""
    """Text to write instead, with ``{}`` for the option's value; nothing where there is none."""
    note: str = ""
    """Note for the user beside the translation."""
    values: int = 1
    """Arguments that the option takes."""
    when: str = ""
    """Pattern that the value has to match in full; any where empty."""
    command: str = ""
    """The command that does what the option asked for."""
    commands: tuple[str, ...] = ()
    """The commands in which it is a habit, typed or asked for by another option; all of them where
    empty, and ``""`` where none is typed."""
    beside: str = ""
    """Another option without which it is not this one."""
    of_model: bool = False
    """True if the option is part of the other program's model."""


Models = Callable[[str, str, Mapping[str, str]], str | None]
"""The model here of a program, a name of its own, and its options that change the model."""

NG, IQ, RAXML, PHYML = "RAxML-NG", "IQ-TREE", "RAxML", "PhyML"

MODEL_OPTIONS = ("-m", "--model")
RAXML_MODEL = r"(?i)(ASC_)?(GTR|BIN|MULTI|PROT)(GAMMA|CAT).*"
"""Names that RAxML 8 alone has."""

ON_TREES = ("support", "consensus", "rf", "bootstop", "concordance")
"""Commands whose first argument is a file of trees."""

ON_A_TREE = ("evaluate", "test", "sitelh")
"""Commands that take a model and branch lengths as they are where they are told to."""

SEARCHES = ("", "search")
"""Where letters are a habit that other commands have for options of their own; ``""``: where no
command is named."""

PRESETS = "the preset sets how far a search goes"
KEPT = "identical sequences are searched once and written all"
GOES_ON = "a stopped search goes on when its command is given again"
NO_COUNTERPART = "no counterpart here"
ALL_CPUS = "every CPU that the process may use is the default"
NUMERIC, NOT_NUMERIC = r"[0-9]+", r"(?![0-9]+$).*"
PARTS = r"(?i).*\.(nex|nexus|parts?|partitions?|txt)"
"""Names of files of partitions, which no prefix is likely to have."""
PARTS_VARY = "a protein model of a part is of one rate unless +G4 stands behind it there"
FOLDER = r".*/|(\.{1,2}/)*[^.]+"
AUTOMATIC = r"(?i)auto(\{[0-9]+\})?"

CHOICE = r"(?i)(MFP?|TEST|TESTNEW)(ONLY|\+.*|\+?MERGE(ONLY)?)?"
CHOOSING = ("", "search", "run", "model")
"""Commands that choose a model; others take the one that was chosen."""

TAKE_MODELS = ("evaluate", "test", "sitelh", "ancestral", "bootstrap")
"""Commands that take a model that was chosen."""

GIVEN = Habit(
    IQ,
    "--model FILE",
    note="`mltree model ALIGNMENT` chooses one; its .bestFitModel is such a file",
    when=CHOICE,
    commands=tuple(command for command in COMMANDS if command not in CHOOSING),
)

MODEL_CHOICES = (
    Habit(RAXML, note="trees need no model", commands=("support", "consensus", "rf", "bootstop")),
    GIVEN,
    Habit(IQ, "--model auto --merge", when=r"(?i)(MFP?|TEST|TESTNEW)\+?MERGE(ONLY)?"),
    Habit(IQ, "--model auto", when=CHOICE),
)

SEQUENCE_TYPES = (
    Habit(IQ, "--data-type protein", when="AA"),
    Habit(IQ, "--data-type dna", when="DNA"),
    Habit(IQ, "--data-type binary", when="BIN"),
    Habit(IQ, "--data-type multistate", when="MORPH", of_model=True),
    Habit(IQ, "--data-type {}", when="CODON[0-9]*"),
    Habit(IQ, note="mltree knows DNA, codons, proteins, genotypes, binary and multistate data"),
)

NAMED = tuple(command for command in COMMANDS if command != "simulate")
"""Commands in which ``-n`` is nothing."""

CONSENSUS = (
    Habit(NG, "--type majority", when="MR", command="consensus"),
    Habit(NG, "--type extended", when="MRE", command="consensus"),
    Habit(NG, "--type strict", when="STRICT", command="consensus"),
    Habit(NG, note="types are strict, majority and extended", command="consensus"),
)

RUNS = (
    Habit(RAXML, "--bootstrap {}", when=NUMERIC, commands=SEARCHES, beside="-x"),
    Habit(RAXML, "--bootstrap {}", when=NUMERIC, commands=SEARCHES, beside="-b"),
    Habit(RAXML, "--tree pars{{{}}}", when=NUMERIC, commands=SEARCHES),
)
"""RAxML's runs: replicates where a seed for them is given."""

HABITS: dict[str, tuple[Habit, ...]] = {
    "--msa": (Habit(NG, "{}"),),
    "--search": (Habit(NG, command="search", values=0),),
    "--search1": (Habit(NG, "--tree pars{{1}}", command="search", values=0),),
    "--all": (
        Habit(NG, command="search", values=0, beside="--bs-trees"),
        Habit(NG, "--bootstrap auto", command="search", values=0),
    ),
    "--evaluate": (Habit(NG, command="evaluate", values=0),),
    "--check": (Habit(NG, command="check", values=0),),
    "--parse": (Habit(NG, command="check", values=0),),
    "--support": (Habit(NG, command="support", values=0),),
    "--consense": CONSENSUS,
    "--rfdist": (Habit(NG, command="rf", values=0),),
    "--loglh": (Habit(NG, "--no-opt-model --no-opt-branches", command="evaluate", values=0),),
    "--start": (Habit(NG, values=0),),
    "--terrace": (Habit(NG, values=0),),
    "--msa-format": (Habit(NG, note="formats are recognised"),),
    "--force": (Habit(NG, values=0),),
    "--bsconverge": (Habit(NG, command="bootstop", values=0),),
    "--bootstrap": (Habit(NG, command="bootstrap", values=0, commands=("",)),),
    "--bs-trees": (
        Habit(NG, "--trees {}", commands=("support",)),
        Habit(NG, "{}", commands=("bootstop", "consensus", "rf")),
        Habit(NG, "--replicates {}", commands=("bootstrap",), when=NUMERIC),
        Habit(NG, "--replicates auto", commands=("bootstrap",)),
        Habit(NG, "--bootstrap {}", when=NUMERIC),
        Habit(NG, "--bootstrap auto"),
    ),
    "--bs-metric": (Habit(NG, "--metric {}"),),
    "--bs-cutoff": (Habit(NG, "--cutoff {}"),),
    "--tree-constraint": (Habit(NG, "--constraint {}"),),
    "--tree": (
        Habit(NG, "{}", commands=ON_TREES),
        Habit(
            NG,
            "--tree FILE",
            note="a start is for `mltree search`; the tree to evaluate is a Newick file",
            when=r"(pars|rand)(\{[0-9]+\})?(,(pars|rand)(\{[0-9]+\})?)*",
            commands=("evaluate", "compare"),
        ),
    ),
    "--threads": (
        Habit(NG, note="one CPU is enough", commands=ON_TREES),
        Habit(NG, note=ALL_CPUS, when=AUTOMATIC),
    ),
    "--workers": (Habit(NG, note="starts are searched side by side"),),
    "--data-type": (
        Habit(NG, "--data-type protein", when="AA"),
        Habit(NG, "--data-type dna", when="NT"),
    ),
    "--opt-model": (
        Habit(NG, "--no-opt-model", when="off", commands=ON_A_TREE),
        Habit(NG, note="a search optimises model and branches", when="off"),
        Habit(NG, note="the model is optimised unless --no-opt-model", when="on"),
    ),
    "--opt-branches": (
        Habit(NG, "--no-opt-branches", when="off", commands=ON_A_TREE),
        Habit(NG, note="a search optimises model and branches", when="off"),
        Habit(NG, note="branches are optimised unless --no-opt-branches", when="on"),
    ),
    "--sitelh": (Habit(NG, "--site-lnl", command="evaluate", values=0),),
    "--spr-radius": (Habit(NG, note="the preset sets the radius"),),
    "--lh-epsilon": (Habit(NG, note="the preset sets when a search ends"),),
    "--nofiles": (Habit(NG, note="files are named by --prefix", values=0),),
    "--log": (Habit(NG, "--verbose", when="(?i)verbose|debug"), Habit(NG)),
    "-i": (Habit(PHYML, "{}", when=r"(?![0-9.]+$).*"),),
    "-d": (
        Habit(PHYML, "--data-type dna", when="nt", beside="-i", of_model=True),
        Habit(PHYML, "--data-type protein", when="aa", beside="-i", of_model=True),
    ),
    "-c": (
        Habit(PHYML, when=NUMERIC, beside="-i", of_model=True),
        Habit(RAXML, when=NUMERIC, beside="-n", of_model=True),
    ),
    "-a": (Habit(PHYML, beside="-i", of_model=True),),
    "-v": (Habit(PHYML, when=r"e|[0-9.]+", beside="-i", of_model=True),),
    "--use_median": (Habit(PHYML, values=0, of_model=True),),
    "--freerates": (Habit(PHYML, values=0, of_model=True),),
    "--r_seed": (Habit(PHYML, "--seed {}"),),
    "--run_id": (Habit(PHYML, "--prefix {}"),),
    "-u": (
        Habit(PHYML, "--tree {}", beside="-i"),
        Habit(RAXML, values=0, beside="-n", of_model=True),
    ),
    "--JC69": (Habit(RAXML, values=0, of_model=True),),
    "--K80": (Habit(RAXML, values=0, of_model=True),),
    "--HKY85": (Habit(RAXML, values=0, of_model=True),),
    "-V": (Habit(RAXML, values=0, beside="-n", of_model=True),),
    "-K": (Habit(RAXML, of_model=True),),
    "--asc-corr": (Habit(RAXML, of_model=True),),
    "-gmedian": (Habit(IQ, values=0, of_model=True),),
    "-s": (
        Habit(PHYML, "--moves nni", when="NNI", beside="-i"),
        Habit(PHYML, note=PRESETS, when="SPR|BEST", beside="-i"),
        Habit(IQ, "--alignment {}", commands=("concordance",)),
        Habit(IQ, "{}", when=NOT_NUMERIC),
    ),
    "-m": MODEL_CHOICES,
    "--model": MODEL_CHOICES,
    "-B": (Habit(IQ, "--ufboot {}"),),
    "-bb": (Habit(IQ, "--ufboot {}"),),
    "-bnni": (Habit(IQ, "--bnni", values=0),),
    "-b": (
        Habit(PHYML, "--bootstrap {}", when=r"[1-9][0-9]*", beside="-i"),
        Habit(PHYML, "--alrt", when="-1", beside="-i"),
        Habit(PHYML, "--sh-alrt 1000", when="-4", beside="-i"),
        Habit(PHYML, "--abayes", when="-5", beside="-i"),
        Habit(PHYML, when="0|-2", beside="-i"),
        Habit(RAXML, "--seed {}", when=NUMERIC, beside="-#"),
        Habit(RAXML, "--seed {}", when=NUMERIC, beside="-N"),
        Habit(IQ, "--bootstrap {}"),
    ),
    "--boot": (Habit(IQ, "--bootstrap {}"),),
    "-alrt": (Habit(IQ, "--alrt", when="0"), Habit(IQ, "--sh-alrt {}")),
    "--alrt": (Habit(IQ, "--alrt", when="0"), Habit(IQ, "--sh-alrt {}", when=NUMERIC)),
    "-lbp": (Habit(IQ, "--lbp {}"),),
    "-abayes": (Habit(IQ, "--abayes", values=0),),
    "-z": (
        Habit(RAXML, "--trees {}", commands=("support",)),
        Habit(RAXML, "{}", commands=ON_TREES),
        Habit(IQ, "--trees {}", command="test"),
    ),
    "-zb": (Habit(IQ, "--replicates {}", command="test"),),
    "-au": (Habit(IQ, "--tests au", command="test", values=0),),
    "--gcf": (Habit(IQ, "--gene-trees {}", command="concordance"),),
    "--scf": (Habit(IQ, "--quartets {}", command="concordance"),),
    "-T": (Habit(IQ, note=ALL_CPUS, when=AUTOMATIC), Habit(IQ, "--threads {}")),
    "-nt": (Habit(IQ, note=ALL_CPUS, when=AUTOMATIC), Habit(IQ, "--threads {}")),
    "-pre": (Habit(IQ, "--prefix {}"),),
    "--seqtype": SEQUENCE_TYPES,
    "-st": SEQUENCE_TYPES,
    "-te": (Habit(IQ, "--tree {}", command="evaluate"),),
    "-t": (
        Habit(PHYML, when=r"e|[0-9.]+", beside="-i", of_model=True),
        Habit(IQ, "--trees {}", commands=("support",), beside="-sup"),
        Habit(IQ, "{}", commands=ON_TREES),
        Habit(IQ, "--tree pars", when="BIONJ|PARS"),
        Habit(IQ, "--tree rand", when="RANDOM"),
    ),
    "-p": (
        Habit(PHYML, "--tree pars", values=0, beside="-i"),
        Habit(RAXML, "--seed {}", when=NUMERIC, commands=("",)),
        Habit(IQ, "--partitions {} --brlen scaled", commands=("",)),
        Habit(IQ, "--partitions {} --brlen scaled", when=PARTS, commands=("search", "run")),
    ),
    "-q": (
        Habit(PHYML, note="formats are recognised", values=0, beside="-i"),
        Habit(IQ, "--partitions {} --brlen linked", when="[^-].*", commands=("",)),
    ),
    "-g": (Habit(IQ, "--constraint {}"),),
    "-o": (
        Habit(PHYML, command="evaluate", when="lr", beside="-i"),
        Habit(PHYML, "--no-opt-model", command="evaluate", when="l", beside="-i"),
        Habit(PHYML, "--no-opt-branches", command="evaluate", when="r", beside="-i"),
        Habit(PHYML, "--no-opt-model --no-opt-branches", command="evaluate", when="n", beside="-i"),
        Habit(PHYML, note="a search optimises model and branches", when="[tlr]+", beside="-i"),
        Habit(IQ, "--outgroup {}", commands=SEARCHES),
    ),
    "-seed": (Habit(IQ, "--seed {}"),),
    "-redo": (Habit(IQ, "--redo", values=0),),
    "-mem": (Habit(IQ, "--memory-limit {}"),),
    "--mem": (Habit(IQ, "--memory-limit {}"),),
    "-fast": (Habit(IQ, "--preset fast", values=0),),
    "--fast": (Habit(IQ, "--preset fast", values=0),),
    "-quiet": (Habit(IQ, "--quiet", values=0),),
    "-czb": (Habit(IQ, "--collapse 1e-6", values=0),),
    "-wsl": (Habit(IQ, "--site-lnl", command="evaluate", values=0),),
    "-wsr": (Habit(IQ, "--site-rates", values=0),),
    "--rate": (Habit(IQ, "--site-rates", values=0),),
    "-wspm": (Habit(IQ, "--site-prob", command="evaluate", values=0),),
    "-blfix": (Habit(IQ, "--no-opt-branches", command="evaluate", values=0),),
    "-asr": (Habit(IQ, "--format iqtree", command="ancestral", values=0),),
    "--ancestral": (Habit(NG, command="ancestral", values=0),),
    "-con": (Habit(IQ, command="consensus", values=0),),
    "-sup": (Habit(IQ, "{}", command="support"),),
    "-rf": (Habit(IQ, "--reference {}", command="rf"),),
    "-rf_all": (Habit(IQ, command="rf", values=0),),
    "-S": (
        Habit(IQ, "--partitions {} --separate", beside="-s"),
        Habit(IQ, "{}", when=FOLDER),
        Habit(IQ, "--partitions {} --separate"),
    ),
    "-spp": (Habit(IQ, "--partitions {} --brlen scaled"),),
    "-Q": (Habit(IQ, "--partitions {} --brlen unlinked"),),
    "-rcluster": (Habit(IQ, "--merge", note="pairs are picked as by -rcluster 10"),),
    "-rclusterf": (Habit(IQ, "--merge", note="pairs are picked as by -rcluster 10"),),
    "-n": (
        Habit(IQ, note=PRESETS, when=NUMERIC, commands=("", *NAMED)),
        Habit(RAXML, "--prefix {}", commands=("", *NAMED)),
    ),
    "-N": RUNS,
    "-#": RUNS,
    "-f": (
        Habit(PHYML, beside="-i", of_model=True),
        Habit(RAXML, command="search", when="[ad]"),
        Habit(RAXML, command="support", when="b"),
        Habit(RAXML, command="evaluate", when="e"),
        Habit(RAXML, "--preset fast", command="search", when="E"),
        Habit(RAXML, command="ancestral", when="A"),
        Habit(RAXML, command="rf", when="r"),
        Habit(RAXML, when="[A-Za-z]"),
    ),
    "-x": (
        Habit(RAXML, note="one seed is for all", when=NUMERIC, commands=SEARCHES, beside="-p"),
        Habit(RAXML, "--seed {}", when=NUMERIC, commands=SEARCHES),
    ),
    "-J": CONSENSUS,
    "-mset": (Habit(IQ),),
    "--mset": (Habit(IQ),),
    "-nstop": (Habit(IQ, note=PRESETS),),
    "-pers": (Habit(IQ, note=PRESETS),),
    "-ninit": (Habit(IQ, note=PRESETS),),
    "-keep-ident": (Habit(IQ, note=KEPT, values=0),),
    "--keep-ident": (Habit(IQ, note=KEPT, values=0),),
    "-undo": (Habit(IQ, note=GOES_ON, values=0),),
    "--undo": (Habit(IQ, note=GOES_ON, values=0),),
    "-wbt": (Habit(IQ, note="trees of replicates are always written", values=0),),
    "--wbt": (Habit(IQ, note="trees of replicates are always written", values=0),),
    "--date": (Habit(IQ),),
}
"""By option; of several the first whose value fits."""


class _Found(NamedTuple):
    """A habit in a command line."""

    shown: str
    habit: Habit
    value: str

    @property
    def flag(self) -> str:
        """The option alone."""
        return self.shown.partition(" ")[0]


def translated(arguments: Sequence[str], models: Models) -> tuple[str, str] | None:
    """Message and hint for a command line that has other programs' options.

    None where it has none of them.

    models  what calls another program's model as it is called here
    """
    rest = list(arguments)
    typed = rest.pop(0) if rest and rest[0] in COMMANDS else ""
    _, found = _sorted_out(rest, {typed})
    command = _asked(found) or typed
    kept, found = _sorted_out(rest, {typed, command})
    if not found:
        return None
    kept, found = _with_model(kept, found, command, models, is_whole=not typed)
    return _problem(found), _hint(command or "search", kept, found)


def _with_model(
    kept: list[str], found: list[_Found], command: str, models: Models, *, is_whole: bool
) -> tuple[list[str], list[_Found]]:
    """The model of the other program as what it computes, be it named or its default.

    Behind a command of mltree's a model is mltree's own, unless its name or the alignment's option
    says otherwise. `is_whole`: nothing of the line is mltree's.
    """
    place, text = _named_model(kept)
    programs = {one.habit.program for one in found}
    is_whole = is_whole or any(one.flag in ("-s", "-i") for one in found)
    program = PHYML if PHYML in programs else IQ if IQ in programs and is_whole else None
    if re.fullmatch(RAXML_MODEL, text):
        program = RAXML
    if program is None or (not text and (program == RAXML or command in ON_TREES)):
        return kept, found
    if not text and program == IQ:
        return kept, found + _chosen(found, programs, command)
    told = {one.flag: one.value for one in found if one.habit.of_model}
    ours = models(program, text, told)
    if ours is not None and ours == text:
        return kept, found
    if program == RAXML and any(one.flag == "-q" for one in found):
        found = [*found, _Found("", Habit(RAXML, note=PARTS_VARY), "")]
    shown = f"{kept[place].partition('=')[0]} {text}" if text else ""
    if ours == "auto" and command not in CHOOSING:
        habit = GIVEN
    else:
        habit = Habit(program, "" if ours is None else "--model {}")
    size = 0 if not text else 1 if "=" in kept[place] else 2
    model = _Found(shown, habit, ours or "")
    return kept[:place] + kept[place + size :], [*found, model]


def _named_model(kept: Sequence[str]) -> tuple[int, str]:
    """Position and name of the model on a command line; nothing where none is named."""
    for place, argument in enumerate(kept):
        flag, joined, value = argument.partition("=")
        if flag in MODEL_OPTIONS:
            return place, value if joined else "".join(kept[place + 1 : place + 2])
    return len(kept), ""


def _chosen(found: Sequence[_Found], programs: Set[str], command: str) -> list[_Found]:
    """Translate IQ-TREE's default, a chosen model, where no model is named."""
    flags = {one.flag for one in found}
    if RAXML in programs or not flags.isdisjoint(MODEL_OPTIONS) or flags.isdisjoint(("-s", "-S")):
        return []
    if not flags.isdisjoint(("-p", "-q", "-spp", "-Q")):
        note = "parts without a model have one chosen there: --model auto"
        return [_Found("", Habit(IQ, note=note), "")]
    if command in CHOOSING:
        return [_Found("", Habit(IQ, "--model auto"), "")]
    return [_Found("", GIVEN, "")] if command in TAKE_MODELS else []


def _sorted_out(arguments: Sequence[str], commands: Set[str]) -> tuple[list[str], list[_Found]]:
    """Split the arguments behind a command into those that stay, and other programs' habits."""
    rest, kept, found = list(arguments), list[str](), list[_Found]()
    flags = {argument.partition("=")[0] for argument in arguments}
    while rest:
        argument = rest.pop(0)
        one = _habit(argument, rest, commands, flags)
        if one is None:
            kept.append(argument)
            continue
        found.append(one)
        if "=" not in argument:
            del rest[: one.habit.values]
    return kept, found


def _habit(
    argument: str, rest: Sequence[str], commands: Set[str], flags: Set[str]
) -> _Found | None:
    """The habit that an argument is, with the value that follows it."""
    flag, joined, value = argument.partition("=") if argument[:2] == "--" else (argument, "", "")
    for habit in HABITS.get(flag, ()):
        if not joined:
            value = rest[0] if rest and habit.values else ""
        fits = not habit.when or re.fullmatch(habit.when, value)
        meant = not habit.commands or not commands.isdisjoint(habit.commands)
        if fits and meant and (not habit.beside or habit.beside in flags):
            shown = f"{flag} {value}" if habit.when and value else flag
            return _Found(shown, habit, value)
    return None


def _asked(found: Sequence[_Found]) -> str:
    """The command that options ask for: of several, what stands for nothing else."""
    asking = [one.habit for one in found if one.habit.command]
    return min(asking, key=lambda habit: bool(habit.here)).command if asking else ""


def _problem(found: Sequence[_Found]) -> str:
    """``-s and -B are IQ-TREE's``."""
    names = list(dict.fromkeys(one.shown for one in found if one.shown))
    programs = " and ".join(dict.fromkeys(one.habit.program for one in found))
    listed = f"{', '.join(names[:-1])} and {names[-1]} are" if names[1:] else f"{names[0]} is"
    return f"{listed} written for {programs}"


def _hint(command: str, kept: Sequence[str], found: Sequence[_Found]) -> str:
    """The same command as it is written here, and what it leaves out."""
    words = ["mltree", command]
    placed = [one for one in found if one.habit.here]
    written = {
        one: shlex.split(one.habit.here.format(shlex.quote(one.value or "FILE"))) for one in placed
    }
    words += [word for one in placed if one.habit.here == "{}" for word in written[one]]
    words += kept
    words += [word for one in placed if one.habit.here != "{}" for word in written[one]]
    notes: dict[str, list[str]] = {}
    for one in found:
        is_nothing = not (one.habit.here or one.habit.command or one.habit.of_model)
        if note := one.habit.note or (NO_COUNTERPART if is_nothing else ""):
            notes.setdefault(note, []).append(one.shown)
    told = [
        f"{', '.join(names)}: {note}"
        if (names := list(filter(None, dict.fromkeys(shown))))
        else note
        for note, shown in notes.items()
    ]
    return "; ".join([f"here: {shlex.join(words)}", *told])
