"""The flags of `recur train`: the fields of the task's options, by construction.

Which task it is, the arguments say (--task, or the file of --config), or the files do. What is typed stands above what
the file of --config says; what neither says is the task's own default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

from cyclopts import App, Group, Parameter, UnknownOptionError

from recur.cli.options import Opening, Output
from recur.errors import OptionError
from recur.models.options import NetworkOptions
from recur.options import Options, documentation, field_of, group_of, hints, value_of
from recur.tasks import options_class, read_config, refusal, task_names
from recur.tasks.defaults import GROUPS, shown_default
from recur.tasks.options import TaskOptions
from recur.tasks.recognise import choose_task

HELP = ("--help", "-h")

Begin = Callable[..., None]
"""Called with the fields of the task's options that are set, and by name with what the command takes beside them."""


class Arguments(NamedTuple):
    """The arguments of `recur train`, looked through."""

    task: str | None
    """None where only help is asked for."""
    why: str
    """How the task was found, if the user did not say it."""
    fields: dict[str, object]
    """What the file of --config sets."""
    rest: list[str]
    """The arguments without --task and --config."""


def split_arguments(arguments: Sequence[str]) -> Arguments:
    rest, task, why = list(arguments), _take(arguments, "task"), ""
    rest, named = _without(rest, "task"), _take(arguments, "config")
    fields: dict[str, object] = {}
    if named is not None:
        rest = _without(rest, "config")
        fields = read_config(Path(named))
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
            raise OptionError(f"the task {task} makes its own data; leave {texts[0]} out")
        for name in fields:
            if name not in cls.names():
                raise OptionError(f"{named}: {refusal(task, name)}")
    return Arguments(task, why, fields, rest)


def _take(arguments: Sequence[str], name: str) -> str | None:
    """The value of a flag, written --name value or --name=value."""
    found = None
    if sum(argument == f"--{name}" or argument.startswith(f"--{name}=") for argument in arguments) > 1:
        raise OptionError(f"--{name} is given twice")
    for k, argument in enumerate(arguments):
        if argument == f"--{name}":
            if k + 1 == len(arguments):
                raise OptionError(f"--{name} needs a value behind it")
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
    """What is neither a flag nor the value of one."""
    every = {name: hint for task in task_names() for name, hint in hints(options_class(task)).items()}
    switches = {"json", "quiet", "tensorboard", "trust", "help"} | {
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
    task: str | None, fields: Mapping[str, object], begin: Begin, examples: str, rest: Callable[..., None] | None = None
) -> App:
    """A command whose flags are a task's options; without one, help on what tasks share. What it takes beside them is
    the signature of `rest`; that of `recur train`, if none is given."""
    cls: type[Options] = options_class(task) if task is not None else _Shared
    texts = documentation(cls)  # once: it reads the sources of a dozen classes
    parameters = [_parameter(cls, task, name, texts[name]) for name in cls.names() if name != "texts"]
    takes_texts = task is None or "texts" in cls.names()
    first = Annotated[str, Parameter(help=_texts_help(task), group=Group("Data", sort_key=1))]
    positional = [inspect.Parameter("texts", inspect.Parameter.VAR_POSITIONAL, annotation=first)] if takes_texts else []
    beside = inspect.signature(rest or _rest, eval_str=True).parameters

    def run(*texts: str, **typed: Any) -> None:
        kept = {name: typed.pop(name, p.default) for name, p in beside.items()}
        given = {name: value for name, value in typed.items() if value is not None}
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
        help_epilogue=examples,
        version_flags=[],
        default_parameter=Parameter(negative_iterable=(), consume_multiple=False),
    )
    app.default(run)
    app["--help"].group = (RUN,)
    return app


def call(app: App, task: str | None, arguments: Sequence[str]) -> None:
    """Run a command; a flag of another task is said to be that."""
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except UnknownOptionError as error:
        reason = explain(error, task) if task is not None else None
        if reason is None:
            raise
        raise OptionError(reason) from None


def explain(error: UnknownOptionError, task: str) -> str | None:
    """What to say of a flag that this task does not have, if another task has it."""
    keyword = error.token.keyword or error.token.value
    name = field_of(keyword.removeprefix("--").removeprefix("no-").replace("-", "_"))
    if name == "texts":
        return "texts have no flag: recur train FILE"
    owned = any(name in options_class(other).names() for other in task_names())
    return refusal(task, name, keyword) if owned else None


@dataclass(frozen=True, kw_only=True)
class _Shared(TaskOptions, NetworkOptions):
    """The options that every task, or every recurrent one, reads."""


RUN = Group("Run", sort_key=9)


def _rest(
    *,
    task: Annotated[str | None, Parameter(help="What to learn; if not given, the file decides.", group=RUN)] = None,
    config: Annotated[Path | None, Parameter(help="Options from a TOML file, below what is typed.", group=RUN)] = None,
    out: Annotated[Path | None, Parameter(help="The run's folder; runs/NAME-TIME, if not given.", group=RUN)] = None,
    folds: Annotated[
        int | None,
        Parameter(help="Cross-validate: train on all but each of so many parts, and measure on it.", group=RUN),
    ] = None,
    tensorboard: Annotated[
        bool, Parameter(help="Write the metrics for TensorBoard too.", negative="", group=RUN, show_default=False)
    ] = False,
    opening: Annotated[Opening, Parameter(name="*", group=RUN, show_default=False)] = Opening(),  # noqa: B008  frozen
    output: Annotated[Output, Parameter(name="*", group=RUN, show_default=False)] = Output(),  # noqa: B008  frozen
) -> None:
    """What every task's command takes beside its options; its signature is read, and never called. --task and --config
    are taken out of the arguments before, and stand here for help."""


def _parameter(cls: type[Options], task: str | None, name: str, help_text: str) -> inspect.Parameter:
    kind = value_of(hints(cls)[name])
    if get_origin(kind) is tuple:
        kind = list[get_args(kind)[0]]  # type: ignore[misc]
    if get_origin(kind) is Literal:
        help_text += f" [{', '.join(map(str, get_args(kind)))}]"
        kind = type(get_args(kind)[0])  # the choices are checked with everything else, in one place
    shown = shown_default(cls, name) if task is not None else ""
    if shown:
        help_text += f" Default: {shown}."
    flag = Parameter(help=help_text, group=_group(cls, task, name), show_default=False)
    annotation = Annotated[kind | None, flag]  # type: ignore[valid-type]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


ORDER = (*GROUPS, "Run")


def _group(cls: type[Options], task: str | None, name: str) -> Group:
    title = group_of(cls, name)
    key = ORDER.index(title) + 1 if title in ORDER else 0  # what is the task's own comes first
    return Group(title if key else f"{title} alone" if title == task else title, sort_key=key)


def _texts_help(task: str | None) -> str:
    files = "Files or folders to learn from"
    if task in (None, "language"):
        return f"{files}; pydoc, the language reference that every Python carries, if none is given."
    return f"{files}; a path in a configuration file is relative to it."


def _about(task: str | None) -> str:
    if task is not None:
        return f"Task {task}. {_first_line(options_class(task))}"
    listed = "\n".join(f"  {name:<12} {_first_line(options_class(name))}" for name in task_names())
    return (
        "Learn a model from a file. The run is a folder: stop it at any moment, with Ctrl-C or worse, and "
        f"`recur resume` goes on from there.\n\nTasks, each with options and defaults of its own:\n\n{listed}\n\n"
        "recur train --task NAME --help shows them. What follows is common; a tree has no cell."
    )


def _first_line(cls: type[Options]) -> str:
    return (cls.__doc__ or "").partition("\n")[0]
