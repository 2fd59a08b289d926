"""`forebay share delete`."""

from __future__ import annotations

import click

from forebay.cli import deletion
from forebay.cli.client import Client, CommandError, client_options
from forebay.operations.groups.share_admin import ShareAdmin


@click.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC",
    multiple=True,
    help="Keep the group, and only forget how far it has come with this topic; may be repeated.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@client_options
def delete(names: tuple[str, ...], topics: tuple[str, ...], yes: bool, client: Client) -> None:
    """Delete share groups without members, or what they know of topics.

    The messages stay in their topics. A group that begins again with a topic begins where
    share.auto.offset.reset says.
    """
    if not yes:
        chosen = [f"{topic} in {name}" for name in names for topic in topics] or names
        deletion.confirm(chosen, "the progress that was made there")
    problems = []
    with ShareAdmin(client) as admin:
        for name in names:
            try:
                if topics:
                    admin.delete_topics(name, topics)
                    click.echo(f"deleted {', '.join(topics)} from share group {name}")
                else:
                    admin.delete(name)
                    click.echo(f"deleted share group {name}")
            except CommandError as error:
                problems.append(f"{name}: {error}")
    if problems:
        raise CommandError("\n".join(problems))
