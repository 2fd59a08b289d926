"""The command `forebay`: finds the verb, and turns every failure into one line and an exit code.

A verb's module is imported when the verb is used, so that `forebay serve` starts without the client library
and without the table printer. Exit codes: 0 success (also with a closed pipe), 1 failure, 2 wrong usage.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from forebay import __version__
from forebay.errors import ConfigError, ForebayError

# The order of the help text: what a newcomer needs first comes first.
VERBS = {
    "serve": "forebay.cli.serve:serve",
    "console": "forebay.cli.console:console",
    "topic": "forebay.cli.topic.commands:topic",
    "view": "forebay.cli.views.commands:view",
    "produce": "forebay.cli.messages.produce:produce",
    "consume": "forebay.cli.messages.consume:consume",
    "work": "forebay.cli.work.work:work",
    "group": "forebay.cli.group.commands:group",
    "share": "forebay.cli.share.commands:share",
    "dead-letter": "forebay.cli.dead_letter.commands:dead_letter",
    "delay": "forebay.cli.delay.commands:delay",
    "transaction": "forebay.cli.transaction:transaction",
    "config": "forebay.cli.config:config",
    "user": "forebay.cli.user.commands:user",
    "token": "forebay.cli.token.commands:token",
    "certs": "forebay.cli.certs:certs",
    "acl": "forebay.cli.acl.commands:acl",
    "quota": "forebay.cli.quota.commands:quota",
    "top": "forebay.cli.top.commands:top",
    "cluster": "forebay.cli.cluster.commands:cluster",
    "pipeline": "forebay.cli.pipeline.commands:pipeline",
    "log": "forebay.cli.log.commands:log",
    "remote": "forebay.cli.remote.commands:remote",
    "simulate": "forebay.cli.simulate:simulate",
}


class VerbGroup(click.Group):
    """A group whose commands are imported on first use."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module_name, _, attribute = VERBS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module_name), attribute)
        return command


@click.group(
    cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="forebay", message="%(prog)s %(version)s")
def forebay() -> None:
    """A message queue that speaks the Kafka protocol.

    Start a broker with `forebay serve`; every Kafka client can use it.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script: never returns, never shows a traceback for an error that a user can cause."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """The exit code of one command line."""
    try:
        code = _invoke(sys.argv[1:] if arguments is None else arguments)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as stop:
        return getattr(stop, "exit_code", 130)
    except BrokenPipeError:
        _abandon_stdout()
        return 0
    except ConfigError as error:
        return _fail(error, 2)
    except ForebayError as error:
        return _fail(error, getattr(error, "exit_code", 1))
    return code


def _invoke(arguments: Sequence[str]) -> int:
    """Like click's own main, but a closed pipe is not a failure."""
    try:
        with forebay.make_context("forebay", list(arguments)) as context:
            code = forebay.invoke(context)
    except click.exceptions.Exit as exit_:
        code = exit_.exit_code
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _fail(error: ForebayError, code: int) -> int:
    click.echo(f"forebay: {error}", err=True)
    return code


def _abandon_stdout() -> None:
    """The reader has gone; without this the interpreter's last flush would report an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
