"""The commands of the prompt: those of the shell that look into a data set, and a few that only make sense here."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import click

from holdfast.cli import get, history, info, multiget, route, shards
from holdfast.cli.output import Column, Line, Part, Table, Verbatim, View
from holdfast.cli.session import Session
from holdfast.cli.words import count, time_text
from holdfast.clock import format_time
from holdfast.errors import BadInput

__all__ = ["prompt_commands", "served_line"]

_json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")


class PromptGroup(click.Group):
    """Commands in the order in which help lists them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            near = get_close_matches(args[0], self.commands, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise BadInput(f"there is no command {args[0]!r} here{hint}; `help` lists them")
        return super().resolve_command(ctx, args)


prompt_commands = PromptGroup(name="", add_help_option=False)
for _module in (get, multiget, info, shards, route, history):
    prompt_commands.add_command(_module.command)


def served_line(session: Session) -> str:
    """What is served, in a sentence without an end."""
    served = session.reader.snapshot_info()
    return (
        f"{session.name}: {count(served.row_count, 'row')} in {count(served.shard_count, 'shard')}, "
        f"published {time_text(served.published_at)} UTC by run {served.run_id}"
    )


def _served_json(session: Session, command: str) -> dict[str, object]:
    served = session.reader.snapshot_info()
    return {
        "command": command,
        "chain": session.chain.handle.identity,
        "ref": served.ref,
        "manifest_id": served.manifest_id,
        "run_id": served.run_id,
        "published_at": format_time(served.published_at),
        "row_count": served.row_count,
        "pinned": session.pinned,
    }


@prompt_commands.command(name="use")
@click.option("--offset", type=int, metavar="N", help="The snapshot at this place in `history`; 0 is the newest.")
@click.option("--ref", metavar="REF", help="The snapshot with this ref, as `history` shows it.")
@click.option("--latest", is_flag=True, help="The visible one, and newer ones at every refresh.")
@_json_option
@click.pass_obj
def use(session: Session, offset: int | None, ref: str | None, latest: bool, as_json: bool) -> None:
    """Switch to another snapshot."""
    if [offset is not None, ref is not None, latest].count(True) != 1:
        raise BadInput("give one of --offset N, --ref R and --latest; `history` lists what there is")
    if offset is not None and offset < 0:
        raise BadInput(f"--offset {offset} is negative; 0 is the newest snapshot, `history` lists them")
    session.use(ref=ref, offset=offset)
    where = "the visible snapshot" if latest else f"offset {offset}" if offset is not None else "the ref"
    parts: list[Part] = [
        Line(f"Now at {where}: {session.reader.snapshot_info().ref}"),
        Line(served_line(session)),
    ]
    session.output(as_json=as_json).show(View(data=_served_json(session, "use"), parts=parts))


@prompt_commands.command(name="refresh")
@_json_option
@click.pass_obj
def refresh(session: Session, as_json: bool) -> None:
    """Look for a newer snapshot, and serve it from now on."""
    outcome = session.reader.refresh().value
    served = served_line(session)
    if session.pinned:
        text = f"Pinned to what `use` chose; `use --latest` follows what is visible. {served}"
    else:
        text = {
            "unchanged": f"Unchanged. {served}",
            "swapped": f"Swapped. {served}",
            "kept": f"What is visible now cannot be read, so the older one is still served. {served}",
        }[outcome]
    data = {**_served_json(session, "refresh"), "refreshed": outcome}
    session.output(as_json=as_json).show(View(data=data, parts=[Line(text)]))


@prompt_commands.command(name="help")
@click.argument("name", required=False, metavar="[COMMAND]")
@_json_option
@click.pass_context
def show_help(context: click.Context, name: str | None, as_json: bool) -> None:
    """List the commands, or explain one."""
    assert context.parent is not None
    session = context.ensure_object(Session)
    output = session.output(as_json=as_json)
    if name is not None:
        _, found, _ = prompt_commands.resolve_command(context.parent, [name])
        assert found is not None
        text = found.get_help(_context(found, name, context.parent, session))
        output.show(View(data={"command": "help", "about": name, "help": text}, parts=[Verbatim(text)]))
        return
    listed = [
        (one.name or "", one.get_short_help_str(limit=200))
        for one in prompt_commands.commands.values()
        if not one.hidden
    ]
    data: dict[str, Any] = {"command": "help", "commands": [{"name": one, "help": about} for one, about in listed]}
    columns = (Column(title="command"), Column(title="what it does", least=20))
    parts: list[Part] = [Table(columns, listed), Line("`help COMMAND` explains one.")]
    output.show(View(data=data, parts=parts))


def _context(command: click.Command, name: str, parent: click.Context, session: Session) -> click.Context:
    return click.Context(command, info_name=name, parent=parent, obj=session)


@prompt_commands.command(name="exit")
@click.pass_obj
def leave(session: Session) -> None:
    """Leave; so does Ctrl-D."""
    session.ended = True


prompt_commands.add_command(click.Command(name="quit", callback=leave.callback, hidden=True))
