"""Steps declared in a file, for `forebay pipeline run FILE.yml`.

A step is the name of a command and its options, spelled as on the command line, and it is parsed by that very
command. So there is one list of options, one set of checks, and one way to say what is wrong.

    bootstrap-server: 127.0.0.1:9092
    steps:
      - archive: {topic: orders, to: /lake/orders, once: true}
      - stats: {source: /lake/orders, report: orders.html}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from forebay.cli.client import Client, CommandError
from forebay.cli.pipeline.engine import INSTALL, Engine
from forebay.cli.pipeline.restarts import NO_RESTART, Restart, restart_of
from forebay.cli.pipeline.step import Collected, Step
from forebay.lazy import dataclass

_RESTART = "restart"
_HEAD = ("bootstrap-server", "properties", "master", "conf", _RESTART, "steps")
_SHARED = ("bootstrap", "properties", "master", "conf", "verbose", "metrics", "as_json")
"""Parameters that hold for the whole file."""
STEPS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredStep:
    command: str
    options: Mapping[str, Any]
    restart: Restart = NO_RESTART


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    path: Path
    steps: list[DeclaredStep]
    bootstrap: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)

    def engine(self, context: click.Context, given: Engine) -> Engine:
        """The command line wins."""
        master = given.master if self.master is None or _was_given(context, "master") else self.master
        return replace(given, master=master, conf={**self.conf, **given.conf})

    def client(self, context: click.Context, given: Client) -> Client:
        own = self.bootstrap is None or _was_given(context, "bootstrap")
        bootstrap = given.bootstrap if own or self.bootstrap is None else self.bootstrap
        return replace(given, bootstrap=bootstrap, properties={**self.properties, **given.properties})


def _was_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


def load(path: Path) -> Declared:
    try:
        import yaml
    except ImportError as error:
        raise CommandError(f"{INSTALL} ({error})") from None
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise CommandError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    return _declared(path, content)


def _declared(path: Path, content: Any) -> Declared:
    if not isinstance(content, dict) or not isinstance(content.get("steps"), list) or not content["steps"]:
        raise CommandError(f"{path} declares nothing: it needs a list of steps under `steps:`")
    for name in content:
        if name not in _HEAD:
            raise CommandError(f"{path}: there is no {name!r}: a file has {', '.join(_HEAD)}")
    if len(content["steps"]) > STEPS_MAX:
        raise CommandError(f"{path} has {len(content['steps'])} steps: at most {STEPS_MAX} fit into a file")
    restart = _restart(path, content, NO_RESTART)
    return Declared(
        path=path,
        steps=[_step(path, number, step, restart) for number, step in enumerate(content["steps"], 1)],
        bootstrap=content.get("bootstrap-server"),
        properties=_texts(path, content, "properties"),
        master=content.get("master"),
        conf=_texts(path, content, "conf"),
    )


def _step(path: Path, number: int, step: Any, restart: Restart) -> DeclaredStep:
    """`restart`: what the file says for all of its steps."""
    if isinstance(step, dict):
        commands = [name for name in step if name != _RESTART]
        if len(commands) == 1 and isinstance(options := step[commands[0]], dict):
            own = _restart(f"{path}: step {number}", step, restart)
            return DeclaredStep(command=str(commands[0]), options=options, restart=own)
    raise CommandError(
        f"{path}: step {number} is not of the form `- COMMAND: {{option: value}}`, with `restart:` beside it"
        " if it is to be started again"
    )


def _restart(where: object, content: Mapping[str, Any], default: Restart) -> Restart:
    if _RESTART not in content:
        return default
    try:
        return restart_of(content[_RESTART])
    except CommandError as error:
        raise CommandError(f"{where}: {error}") from None


def _texts(path: Path, content: Mapping[str, Any], name: str) -> dict[str, str]:
    values = content.get(name) or {}
    if not isinstance(values, dict):
        raise CommandError(f"{path}: {name} is not a list of names and values")
    return {str(key): _text(value) for key, value in values.items()}


def steps_of(group: click.Group, declared: Declared, context: click.Context) -> list[Step]:
    """Each step, parsed by its command, before any of them runs."""
    collected = Collected()
    parent = click.Context(group, parent=context, obj=collected)
    steps: list[Step] = []
    for number, step in enumerate(declared.steps, 1):
        name = step.command
        command = group.commands.get(name)
        if command is None or name == "run":
            known = ", ".join(other for other in group.commands if other != "run")
            raise CommandError(f"{declared.path}: step {number}: there is no {name!r}: choose {known}")
        try:
            arguments = list(_arguments(command, step.options))
            with command.make_context(name, arguments, parent=parent) as inner:
                command.invoke(inner)
        except click.ClickException as error:
            raise CommandError(f"{declared.path}: step {number} ({name}): {error.format_message()}") from None
        found = collected.steps[-1]
        is_known = any(other.name == found.name for other in steps)
        own_name = f"{found.name} (step {number})" if is_known else found.name
        steps.append(replace(found, name=own_name, restart=step.restart))
    return steps


def _arguments(command: click.Command, options: Mapping[str, Any]) -> Iterator[str]:
    """The command line that says the same."""
    left = dict(options)
    positional = []
    for parameter in command.params:
        if parameter.name in _SHARED:
            continue
        if isinstance(parameter, click.Argument):
            if parameter.name in left:
                positional.append(_text(left.pop(parameter.name)))
        elif (name := parameter.opts[-1].removeprefix("--")) in left:
            yield from _option(name, left.pop(name))
    if left:
        known = [_declared_name(parameter) for parameter in command.params if parameter.name not in _SHARED]
        raise click.UsageError(f"there is no {next(iter(left))!r}: choose {', '.join(known)}")
    yield from ["--", *positional]


def _declared_name(parameter: click.Parameter) -> str:
    return (
        str(parameter.name)
        if isinstance(parameter, click.Argument)
        else parameter.opts[-1].removeprefix("--")
    )


def _option(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (f"--{name}={key}={_text(inner)}" for key, inner in value.items())
    elif isinstance(value, list):
        yield from (f"--{name}={_text(inner)}" for inner in value)
    elif value is True:
        yield f"--{name}"
    elif value is not False:
        yield f"--{name}={_text(value)}"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
