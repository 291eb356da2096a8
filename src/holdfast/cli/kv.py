"""What the commands for key-value data sets share: their options, the words they take, and how they read.

Without `--direct` or `--cached`, files of this machine are mapped where they are, and of a remote store only the few
ranges are fetched that a look-up needs: nobody wants to wait for a download to see one row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from holdfast.cli.call import Call, common_options
from holdfast.cli.config import Settings, load_settings
from holdfast.cli.session import OpenReader, Session, current_session
from holdfast.errors import BadInput, Damaged, NotFound, ReaderStateError

if TYPE_CHECKING:
    from holdfast.chain.chain import Chain
    from holdfast.kv import DataSet, ShardedReader, SnapshotInfo

__all__ = ["KvCommand", "Look", "is_place", "one_key", "reading_options", "several_keys", "where_options"]

_F = TypeVar("_F", bound=Callable[..., object])
_NUMBER = re.compile(r"-\d.*", re.DOTALL)
_PLACE = re.compile(r"(?:file|memory|s3|gs|az|sqlite|postgresql)://.*|(?:/|\./|\.\./|~).*|\.\.?", re.DOTALL)


def where_options(function: _F) -> _F:
    """Which snapshot, and how the answer is printed."""
    function = common_options(function)
    function = click.option(
        "--offset", type=int, metavar="N", help="The snapshot at this place in `history`; 0 is the newest."
    )(function)
    return click.option("--ref", metavar="REF", help="The snapshot with this ref, as `history` shows it.")(function)


def reading_options(function: _F) -> _F:
    """How data is read."""
    function = click.option(
        "--cache",
        metavar="DIR",
        help="Keep downloaded files here, and read --cached; HOLDFAST_CACHE, or ~/.cache/holdfast.",
    )(function)
    return click.option(
        "--direct/--cached",
        default=None,
        help="Fetch only the ranges that are needed, or whole files to keep and map; HOLDFAST_MODE. If not given: "
        "files of this machine are mapped where they are, and of a remote store ranges are fetched.",
    )(function)


class KvCommand(click.Command):
    """A command that takes negative numbers as keys, and whose help at a prompt leaves out what only a shell needs."""

    def __init__(self, *args: object, **attributes: object) -> None:
        super().__init__(*args, **attributes)  # type: ignore[arg-type]
        self.ignore_unknown_options = True

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = list(args)
        rest = super().parse_args(ctx, args)
        before = given[: given.index("--")] if "--" in given else given
        for word in self._words(ctx):
            if word.startswith("-") and word != "-" and word in before and not _NUMBER.fullmatch(word):
                known = [name for option in self.params for name in option.opts if name.startswith("--")]
                raise click.NoSuchOption(word, possibilities=get_close_matches(word, known, cutoff=0.75), ctx=ctx)
        return rest

    @staticmethod
    def _words(ctx: click.Context) -> Sequence[str]:
        found = ctx.params.get("words", ctx.params.get("url"))
        return (found,) if isinstance(found, str) else tuple(found or ())

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        pieces = super().collect_usage_pieces(ctx)
        if ctx.find_object(Session) is None:
            return pieces
        return [piece for one in pieces if (piece := one.replace("[URL]", "").strip())]

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if ctx.find_object(Session) is None:
            super().format_help_text(ctx, formatter)
            return
        words = cleandoc(self.help or "").partition("\b")[0].strip()
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(words)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        at_prompt = ctx.find_object(Session) is not None
        records = [
            record
            for option in self.get_params(ctx)
            if isinstance(option, click.Option)
            and not (at_prompt and option.name == "layout")
            and (record := option.get_help_record(ctx)) is not None
        ]
        with formatter.section("Options"):
            formatter.write_dl(records)


def one_key(words: Sequence[str]) -> tuple[str | None, str]:
    """`[URL] KEY`."""
    at_prompt = current_session() is not None
    if len(words) == 1 and (at_prompt or load_settings().chain is not None):
        return None, words[0]
    if len(words) == 2 and not at_prompt:
        return words[0], words[1]
    expected = "one KEY" if at_prompt else "[URL] KEY"
    hint = "" if at_prompt or len(words) != 1 else " and no chain is configured"
    raise click.UsageError(f"expected {expected}, got {_count(words)}{hint}", ctx=click.get_current_context())


def several_keys(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """`[URL] KEY...`: the first word is a URL where no chain is configured, or if it is written as one."""
    if current_session() is not None or not words:
        return None, list(words)
    if is_place(words[0]) or load_settings().chain is None:
        return words[0], list(words[1:])
    return None, list(words)


def is_place(word: str) -> bool:
    """Whether a word is written as a URL: with a scheme, or as a path that says where it begins."""
    return _PLACE.fullmatch(word) is not None


def _count(words: Sequence[str]) -> str:
    return "1 argument" if len(words) == 1 else f"{len(words) or 'no'} arguments"


class Look:
    """One look into a key-value data set: at the snapshot that was named, at the prompt's, or at the visible one."""

    def __init__(
        self,
        url: str | None,
        *,
        ref: str | None,
        offset: int | None,
        layout: str | None,
        as_json: bool,
        direct: bool | None = None,
        cache: str | None = None,
    ) -> None:
        if ref is not None and offset is not None:
            raise BadInput("--ref and --offset both name a snapshot; give one of them")
        if offset is not None and offset < 0:
            raise BadInput(f"--offset {offset} is negative; 0 is the newest snapshot, `holdfast history` lists them")
        if direct and cache is not None:
            raise BadInput("--direct keeps no files; give it, or --cache DIR")
        self.call = Call(url, layout=layout, as_json=as_json)
        self.output = self.call.output
        self.as_json = self.call.as_json
        chain = self.call.chain
        if chain.layout.name != "kv":
            raise BadInput(
                f"{self.call.identity} is no key-value data set; `holdfast show` describes what it is, or name another"
            )
        self._ref = ref
        self._offset = offset
        self.open_reader = _reader_opener(chain, self.call.settings, direct=direct, cache=cache)
        given = (ref, offset, direct, cache) != (None, None, None, None)
        self._session = None if given else current_session()

    @contextmanager
    def reader(self) -> Iterator[ShardedReader]:
        """The prompt's reader, or one for this call."""
        if self._session is not None:
            yield self._session.reader
            return
        with self.open_reader(self._ref, self._offset) as opened:
            yield opened

    def info(self) -> SnapshotInfo:
        """What the manifest says of the snapshot; no data is read."""
        if self._session is not None:
            return self._session.reader.snapshot_info()
        from holdfast.kv import describe_snapshot

        return describe_snapshot(self.call.chain, ref=self._ref, offset=self._offset)

    def tags(self, info: SnapshotInfo) -> dict[str, str]:
        """The tags that the snapshot has now; those of its birth where it has left the history meanwhile."""
        from holdfast.chain.tags import read_tags, tags_of

        handle = self.call.chain.handle
        try:
            move = self.call.chain.find(ref=info.ref)
        except NotFound:
            return dict(info.tags)
        return tags_of(read_tags(handle)[0], move)

    def snapshot(self) -> tuple[str, DataSet]:
        """Its ref, and its shards by the manifest; no data is read."""
        if self._session is not None:
            return self._session.reader.snapshot_info().ref, self._session.reader.dataset
        from holdfast.kv import DataSet

        chain = self.call.chain
        move = chain.find(ref=self._ref, offset=self._offset)
        manifest = chain.load_manifest(move.manifest_path)
        return chain.layout.ref_of(move.manifest_path), DataSet.of_manifest(manifest)


def _reader_opener(chain: Chain, settings: Settings, *, direct: bool | None, cache: str | None) -> OpenReader:
    """How to open a reader, by what was typed and what is configured."""
    if direct is None and cache is None and settings.mode is not None:
        direct = settings.mode == "direct"
    elif direct is None:
        direct = cache is None and not chain.store.url.startswith("file:")
    folder = cache or settings.cache

    def open_reader(ref: str | None, offset: int | None) -> ShardedReader:
        from holdfast.kv import ShardedReader

        try:
            return ShardedReader.open(
                chain,
                mode="direct" if direct else "cache",
                cache=None if folder is None else Path(folder).expanduser(),
                ref=ref,
                offset=offset,
                max_fallback_attempts=0,  # who asks for the visible snapshot is not shown an older one (K22)
            )
        except ReaderStateError as error:
            cause = error.__context__ if isinstance(error.__context__, Damaged) else error
            raise ReaderStateError(
                f"the visible snapshot cannot be read: {cause}; run `holdfast verify`, or ask another by --offset"
            ) from error

    return open_reader
