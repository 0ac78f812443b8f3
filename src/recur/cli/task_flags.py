"""Flags of `recur train` and `recur sweep`, generated from the fields of the task's options.

The task comes from --task, from the file of --config, or is recognised from the training files. A flag overrides the
value in the file of --config; the default of the task applies to options that neither sets.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from cyclopts import App, Group, Parameter, UnknownOptionError

from recur.cli.options import PLAIN, Opening, Output
from recur.errors import OptionError
from recur.models.options import NetworkOptions
from recur.options import Options, documentation, field_of, flag_of, group_of, hints, value_of
from recur.tasks import options_class, read_config, refusal, task_names
from recur.tasks.common.options import TaskOptions
from recur.tasks.common.registry import GROUPS, choose_task, shown_default
from recur.utils.trust import name_cell

HELP = ("--help", "-h", "--help-all")

COMMON = (
    "task", "config", "out", "cell", "hidden_size", "num_layers", "batch_size", "lr", "epochs", "minutes",
)  # fmt: skip
"""Options that --help describes; --help-all describes every option."""

Begin = Callable[..., None]
"""begin(fields, **others): fields of the task's options that are set; the other flags of the command by name."""


class Arguments(NamedTuple):
    """Parsed arguments of `recur train`: the task and the options of the configuration file."""

    task: str | None
    """None if only help is requested."""
    why: str
    """How the task was recognised; empty if the user named it."""
    fields: dict[str, object]
    """Options that the file of --config sets."""
    rest: list[str]
    """The arguments without --task and --config."""


def with_lists(arguments: Sequence[str]) -> list[str]:
    """Return arguments in which flags of columns are repeated: `--covariates a b` and `--covariates a,b` become
    `--covariates a --covariates b`. A further value that is a file or folder is one to train on."""
    found: list[str] = []
    flag = ""
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if argument.startswith("-") and not _is_number(argument):
            flag = name if name in LISTS else ""
            if flag and equals:
                for part in value.split(","):
                    found += [flag, part]
            elif not flag:
                found.append(argument)
            continue
        if not flag or (found[-2:-1] == [flag] and Path(argument).exists()):
            flag = ""
            found.append(argument)
            continue
        for part in argument.split(","):
            found += [flag, part]
    return found


LISTS = ("--target", "--covariates", "--past-covariates", "--static", "--quantiles")
"""Flags whose values may be given together: names of columns, or numbers."""


def _is_number(argument: str) -> bool:
    try:
        float(argument)
    except ValueError:
        return False
    return True


def split_arguments(arguments: Sequence[str]) -> Arguments:
    arguments = with_lists(arguments)
    rest, task, why = list(arguments), _take(arguments, "task"), ""
    rest, named = _without(rest, "task"), _take(arguments, "config")
    fields: dict[str, object] = {}
    if named is not None:
        rest = _without(rest, "config")
        fields = read_config(Path(named), trusting="--trust" in rest)
        found = fields.pop("task", None)
        if found is not None and not isinstance(found, str):
            raise OptionError(f"{named}: task must be text, got {found!r}")
        task = task or found
    if task is None:
        texts = _positional(rest) or fields.get("texts", ())
        try:
            task, why = choose_task([str(name) for name in texts])  # type: ignore[attr-defined]
        except OptionError:
            if not any(flag in rest for flag in HELP):
                raise
        if not texts and any(flag in rest for flag in HELP):
            task = None
    if task is not None:
        cls = options_class(task)
        texts = _positional(rest)
        if texts and "texts" not in cls.names():
            raise OptionError(f"the task {task} generates its data; leave {texts[0]} out")
        for name in fields:
            if name not in cls.names():
                raise OptionError(f"{named}: {refusal(task, name)}")
    return Arguments(task, why, fields, rest)


def _take(arguments: Sequence[str], name: str) -> str | None:
    """Return the value of a flag, written --name value or --name=value; None if it is absent."""
    found = None
    if sum(argument == f"--{name}" or argument.startswith(f"--{name}=") for argument in arguments) > 1:
        raise OptionError(f"--{name} is given twice")
    for k, argument in enumerate(arguments):
        if argument == f"--{name}":
            if k + 1 == len(arguments):
                raise OptionError(f"--{name} needs a value")
            found = arguments[k + 1]
        elif argument.startswith(f"--{name}="):
            found = argument.partition("=")[2]
    return found


def _without(arguments: Sequence[str], name: str) -> list[str]:
    kept, skip = [], False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == f"--{name}":
            skip = True
        elif not argument.startswith(f"--{name}="):
            kept.append(argument)
    return kept


def _positional(arguments: Sequence[str]) -> list[str]:
    """Return the arguments that are neither flags nor values of flags."""
    every = {name: hint for task in task_names() for name, hint in hints(options_class(task)).items()}
    switches = {"json", "quiet", "trust", "help", "help_all"} | {
        n for n, hint in every.items() if value_of(hint) is bool
    }
    found, skip = [], False
    for argument in arguments:
        name = argument.removeprefix("--").removeprefix("no-").replace("-", "_")
        if skip:
            skip = False
        elif argument.startswith("--"):
            skip = "=" not in argument and name not in switches
        elif not (argument.startswith("-") and len(argument) > 1):
            found.append(argument)
    return found


# The command ----------------------------------------------------------------------------------------------------


def flag_app(
    task: str | None,
    fields: Mapping[str, object],
    begin: Begin,
    examples: str,
    rest: Callable[..., None] | None = None,
    everything: bool = False,
) -> App:
    """Return a command whose flags are the options of a task.

    task: None prints help on the options that all tasks share.
    rest: a function whose signature is the command's other flags; by default those of `recur train`.
    everything: describe every option in help, in groups; by default only the common ones.
    """
    cls: type[Options] = options_class(task) if task is not None else _Shared
    texts = documentation(cls)  # once: it reads the sources of a dozen classes
    parameters = [_parameter(cls, task, name, texts[name], everything) for name in cls.names() if name != "texts"]
    takes_texts = task is None or "texts" in cls.names()
    data = Group("Data", sort_key=1) if everything else OPTIONS
    first = Annotated[str, Parameter(help=_texts_help(task), group=data)]
    positional = [inspect.Parameter("texts", inspect.Parameter.VAR_POSITIONAL, annotation=first)] if takes_texts else []
    beside = dict(inspect.signature(rest or _rest, eval_str=True).parameters)
    if not everything:
        beside = {name: _shortened(parameter, rest is None) for name, parameter in beside.items()}

    def run(*texts: str, **typed: Any) -> None:
        kept = {name: typed.pop(name, p.default) for name, p in beside.items()}
        given = {name: value for name, value in typed.items() if value is not None}
        name_cell(given.get("cell"))
        if fields.get("tuned_on") and given:  # what is typed beside a recipe is not for its rule to change
            given["untouched"] = (*given.get("untouched", ()), *given)
        if texts:
            given["texts"] = texts
        begin({**fields, **given}, **{name: value for name, value in kept.items() if name not in ("task", "config")})

    signature = inspect.Signature([*positional, *parameters, *beside.values()])
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {name: p.annotation for name, p in signature.parameters.items()}
    app = App(
        suppress_keyboard_interrupt=False,
        name="recur train" if rest is None else "recur sweep",
        help=_about(task) if rest is None else (rest.__doc__ or ""),
        help_format="plaintext",
        help_epilogue=examples if everything else _short_epilogue(task, cls, examples, rest is None),
        help_flags=HELP,
        version_flags=[],
        default_parameter=Parameter.combine(PLAIN, Parameter(consume_multiple=False)),
    )
    app.default(run)
    app["--help"].group = (RUN if everything else OPTIONS,)
    return app


def call(app: App, task: str | None, arguments: Sequence[str]) -> None:
    """Run a command; a flag that belongs to another task is reported as such."""
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except UnknownOptionError as error:
        reason = explain(error, task) if task is not None else None
        if reason is None:
            raise
        raise OptionError(reason) from None


def explain(error: UnknownOptionError, task: str) -> str | None:
    """Return the message for a flag that only other tasks have; None if no task has it."""
    keyword = error.token.keyword or error.token.value
    name = field_of(keyword.removeprefix("--").removeprefix("no-").replace("-", "_"))
    if name == "texts":
        return "training files are positional arguments: recur train FILE"
    owned = any(name in options_class(other).names() for other in task_names())
    return refusal(task, name, keyword) if owned else None


@dataclass(frozen=True, kw_only=True)
class _Shared(TaskOptions, NetworkOptions):
    """Options that all tasks, or all recurrent ones, share."""


RUN = Group("Run", sort_key=9)
OPTIONS = Group("Options", sort_key=1)
"""The one group of the short help."""


def _shortened(parameter: inspect.Parameter, train: bool) -> inspect.Parameter:
    """Return a flag of the command for the short help: without a group of its own, and hidden unless it is common."""
    shown = parameter.name in COMMON or (not train and parameter.name not in ("opening", "output"))
    return parameter.replace(annotation=Annotated[parameter.annotation, Parameter(group=OPTIONS, show=shown)])


def _short_epilogue(task: str | None, cls: type[Options], examples: str, train: bool) -> str:
    """Return the text below the short help: names of the task's own options, how to see every option, examples."""
    command = f"recur {'train' if train else 'sweep'}{f' --task {task}' if task else ''}"
    own = [flag_of(name) for name in cls.names() if group_of(cls, name) not in ORDER and name not in (*COMMON, "texts")]
    lines = [f"Options of {task} alone: {', '.join(own)}"] if task is not None and own else []
    lines.append(f"`{command} --help-all` lists every option.")
    return "\n\n".join([*lines, "\n".join(examples.splitlines()[:SHORT_EXAMPLES])])


SHORT_EXAMPLES = 5
"""Lines of examples in the short help."""


def _rest(
    *,
    task: Annotated[str | None, Parameter(help="Task; by default recognised from the file.", group=RUN)] = None,
    config: Annotated[Path | None, Parameter(help="TOML file with options; flags override it.", group=RUN)] = None,
    out: Annotated[
        Path | None, Parameter(name=["--out", "-o"], help="Run folder; default: runs/NAME-TIME.", group=RUN)
    ] = None,
    folds: Annotated[
        int | None,
        Parameter(help="Cross-validation with this many folds.", group=RUN),
    ] = None,
    engine: Annotated[
        str | None, Parameter(help="Train on Ray in several processes: ray; needs --workers.", group=RUN)
    ] = None,
    workers: Annotated[int | None, Parameter(help="Number of processes of --engine.", group=RUN)] = None,
    log: Annotated[
        list[str] | None,
        Parameter(help="Also log the metrics to tensorboard, mlflow or wandb; repeat it for several.", group=RUN),
    ] = None,
    opening: Annotated[Opening, Parameter(name="*", group=RUN, show_default=False)] = Opening(),  # noqa: B008  frozen
    output: Annotated[Output, Parameter(name="*", group=RUN, show_default=False)] = Output(),  # noqa: B008  frozen
) -> None:
    """Declare the flags that every task has beside its options; only the signature is read. --task and --config are
    removed from the arguments before, and are here for help."""


def _parameter(cls: type[Options], task: str | None, name: str, help_text: str, everything: bool) -> inspect.Parameter:
    kind = value_of(hints(cls)[name])
    if get_origin(kind) is tuple:
        kind = list[get_args(kind)[0]]  # type: ignore[misc]
    if get_origin(kind) is Literal:
        help_text += f" [{', '.join(map(str, get_args(kind)))}]"
        kind = type(get_args(kind)[0])  # the choices are checked with everything else, in one place
    shown = shown_default(cls, name) if task is not None else ""
    if shown:
        help_text += f" Default: {shown}."
    group = _group(cls, task, name) if everything else OPTIONS
    flag = Parameter(help=help_text, group=group, show_default=False, show=everything or name in COMMON)
    annotation = Annotated[kind | None, flag]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


ORDER = (*GROUPS, "Run")


def _group(cls: type[Options], task: str | None, name: str) -> Group:
    title = group_of(cls, name)
    key = ORDER.index(title) + 1 if title in ORDER else 0  # what is the task's own comes first
    return Group(title if key else f"{title} alone" if title == task else title, sort_key=key)


def _texts_help(task: str | None) -> str:
    files = "Training files or folders"
    if task in (None, "language"):
        return f"{files}; default: pydoc, the language reference of the installed Python."
    return f"{files}; paths in a configuration file are relative to that file."


def _about(task: str | None) -> str:
    if task is not None:
        return f"Task {task}. {_first_line(options_class(task))}"
    listed = "\n".join(f"  {name:<12} {_first_line(options_class(name))}" for name in task_names())
    return (
        "Train a model from a file. The result is a run folder; Ctrl-C stops training and `recur resume` continues it."
        f"\n\nTasks; recur train --task NAME --help shows the options and defaults of one:\n\n{listed}"
    )


def _first_line(cls: type[Options]) -> str:
    return (cls.__doc__ or "").partition("\n")[0]
