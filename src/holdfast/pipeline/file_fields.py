"""Everything that a pipeline file may say: the one description that its reader and its JSON schema are made of."""

from __future__ import annotations

from holdfast.kv.routing import SHARDS_MAX
from holdfast.pipeline.file_kinds import (
    Field,
    Many,
    Named,
    Names,
    Number,
    Record,
    Rule,
    Settings,
    Text,
    Value,
    Variants,
    Whole,
)

__all__ = ["DATASET_NAME", "GRAPH", "KV", "PIPELINE", "RELATION_NAME", "TABLE"]

_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
RELATION_NAME = Text(pattern=_WORD, form="a name that SQL can use: letters, digits and _, not starting with a digit")
DATASET_NAME = Text(
    pattern=r"[a-z0-9][a-z0-9._-]{0,127}",
    form="1 to 128 lower-case letters, digits, _, - or ., starting with a letter or digit",
)
_TAG = Text(pattern=r"\S(?:[^=]*[^=\s])?=.*", form="key=value")
_TAG_NAME = Text(pattern=r"[^=\s](?:[^=]*[^=\s])?", form="text without = and without spaces around it")
_SETTING = Text(pattern=r"spark(?:\..+)?", form='a name of Spark\'s, such as "spark.sql.shuffle.partitions"')

# -- sources and steps -------------------------------------------------------------------------------------------------

_FILES = Record(
    what="a source of files",
    fields=(
        Field(
            name="path", kind=Text(), is_needed=True,
            about="A file, a folder, a pattern or a URL; a relative path begins at the pipeline's file.",
        ),
        Field(name="format", kind=Text(), about="parquet (if left out), csv, json, orc, or another that Spark has."),
        Field(name="options", kind=Settings(dotted=True), about="Options of Spark's reader, such as header = true."),
        Field(name="schema", kind=Text(), about="Columns as Spark's DDL: id BIGINT, name STRING."),
    ),
    elsewhere=dict.fromkeys(("ref", "version", "tag", "part"), "a source with `dataset`"),
)  # fmt: skip
_SNAPSHOT = Record(
    what="a source with `dataset`",
    fields=(
        Field(name="dataset", kind=Text(), is_needed=True, about="The name of a data set of the workspace."),
        Field(name="version", kind=Whole(least=1), about="One snapshot by its number; the visible one if left out."),
        Field(name="ref", kind=Text(), about="One snapshot by its ref, as `holdfast history` shows it."),
        Field(name="tag", kind=_TAG, about="The newest snapshot with this tag: key=value."),
        Field(name="part", kind=Text(choices=("nodes", "edges")), about="Of a graph: its nodes or its edges."),
    ),
    rules=(Rule("at most one", ("version", "ref", "tag")),),
    elsewhere=dict.fromkeys(("format", "options", "schema"), "a source with `path`"),
)
_SOURCE = Variants(
    what="a source", sorts={"files": _FILES, "snapshot": _SNAPSHOT}, marks={"path": "files", "dataset": "snapshot"}
)
_STEP = Record(
    what="a step",
    fields=(
        Field(name="sql", kind=Text(), about="One query in Spark's SQL; sources and steps are its tables."),
        Field(name="file", kind=Text(), about="The same, in a file beside this one."),
        Field(name="description", kind=Text(may_be_empty=True), about="What it does."),
    ),
    rules=(Rule("one", ("sql", "file")),),
)

# -- checks ------------------------------------------------------------------------------------------------------------

_ENDS = Rule("at least one", ("min", "max"))
_RANGE = Record(
    what="a range check",
    fields=(
        Field(name="column", kind=Text(), is_needed=True, about="The column whose values are looked at."),
        Field(name="min", kind=Value(booleans=False), about="The least value that is allowed."),
        Field(name="max", kind=Value(booleans=False), about="The largest value that is allowed."),
    ),
    rules=(_ENDS,),
)
_ROWS = Record(
    what="a rows check",
    fields=(
        Field(name="min", kind=Whole(least=0), about="The least number of rows."),
        Field(name="max", kind=Whole(least=0), about="The largest number of rows."),
    ),
    rules=(_ENDS,),
)
_CHANGE = Record(
    what="a change check",
    fields=(
        Field(
            name="fewer", kind=Number(least=0, most=1), about="0.2 allows a fifth fewer rows than the last snapshot."
        ),
        Field(name="more", kind=Number(least=0), about="0.5 allows half as many rows more than the last snapshot."),
    ),
    rules=(Rule("at least one", ("fewer", "more")),),
)
_CHECK = Record(
    what="a check",
    fields=(
        Field(name="not_null", kind=Names(), about="These columns have no nulls."),
        Field(name="unique", kind=Names(), about="No two rows have the same values in all of these columns."),
        Field(name="range", kind=_RANGE, about="Values of a column lie between min and max, both included."),
        Field(name="rows", kind=_ROWS, about="How many rows there are."),
        Field(name="change", kind=_CHANGE, about="How many rows there are against the last snapshot."),
    ),
    rules=(Rule("one", ("not_null", "unique", "range", "rows", "change")),),
)
_CHECKS = Many(of=_CHECK)

# -- data sets ---------------------------------------------------------------------------------------------------------

_ABOUT = (
    Field(name="description", kind=Text(may_be_empty=True), about="What it is, for the catalog."),
    Field(name="owner", kind=Text(may_be_empty=True), about="Whom to ask; the pipeline's owner if left out."),
    Field(name="tags", kind=Settings(name=_TAG_NAME), about="Tags of every snapshot that is published."),
    Field(name="checks", kind=_CHECKS, about="What must hold before anything is published."),
)
_FROM = Field(name="from", kind=Text(), is_needed=True, about="The step or source whose rows it has.")
_KV_OWN = (
    _FROM,
    Field(name="key", kind=Names(), is_needed=True, about="The column, or columns, that rows are looked up by."),
    Field(name="shards", kind=Whole(least=1, most=SHARDS_MAX), about="How many shards it has."),
    Field(name="rows_per_shard", kind=Whole(least=1), about="How many rows a shard should have, instead of `shards`."),
    Field(
        name="on_duplicate",
        kind=Text(pattern=r"error|last|max\(\s*\S.*\)", form="error, last or max(COLUMN)"),
        about="Rows with the same key: error (if left out), last, or max(COLUMN).",
    ),
)
_GRAPH_OWN = (
    Field(name="nodes", kind=Text(), is_needed=True, about="The step or source whose rows are its nodes."),
    Field(name="edges", kind=Text(), is_needed=True, about="The step or source whose rows are its edges."),
    Field(
        name="dangling",
        kind=Text(choices=("refuse", "keep")),
        about="Edges to nodes that are not there: refuse (if left out) or keep.",
    ),
    Field(name="edge_checks", kind=_CHECKS, about="What must hold for edges; `checks` are for nodes."),
)
_TABLE_OWN = (_FROM, Field(name="files", kind=Whole(least=1), about="How many Parquet files it has."))
_OWN = {"kv": _KV_OWN, "graph": _GRAPH_OWN, "table": _TABLE_OWN}


def _dataset(kind: str) -> Record:
    says = Field(name="kind", kind=Text(choices=(kind,)), is_needed=True, about="kv, graph or table.")
    own = {one.name for one in _OWN[kind]}
    others = {one.name: f"{sort} data sets" for sort, fields in _OWN.items() for one in fields if one.name not in own}
    rules = (Rule("one", ("shards", "rows_per_shard")),) if kind == "kv" else ()
    return Record(what=f"a {kind} data set", fields=(says, *_OWN[kind], *_ABOUT), rules=rules, elsewhere=others)


KV, GRAPH, TABLE = _dataset("kv"), _dataset("graph"), _dataset("table")
_DATASET = Variants(what="a data set", sorts={"kv": KV, "graph": GRAPH, "table": TABLE}, by="kind")

# -- all of it ---------------------------------------------------------------------------------------------------------

PIPELINE = Record(
    what="a pipeline",
    fields=(
        Field(
            name="name", is_needed=True, about="What it is called in runs and in the catalog.",
            kind=Text(pattern=r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", form="1 to 128 letters, digits, ., _ or -"),
        ),
        Field(name="description", kind=Text(may_be_empty=True), about="What it is for."),
        Field(name="owner", kind=Text(may_be_empty=True), about="Whom to ask."),
        Field(name="namespace", kind=Text(), about="Where its tables are in the catalog; its name if left out."),
        Field(name="workspace", kind=Text(), about="A path or URL that ends in tenant and workspace."),
        Field(
            name="parameters", kind=Settings(name=RELATION_NAME),
            about="Names with defaults: :name in SQL, ${name} in SQL, paths and options.",
        ),
        Field(name="spark", kind=Settings(name=_SETTING, dotted=True), about="Settings of the Spark session."),
        Field(name="sources", kind=Named(of=_SOURCE, name=RELATION_NAME), about="What is read."),
        Field(name="steps", kind=Named(of=_STEP, name=RELATION_NAME), about="Queries over sources and other steps."),
        Field(name="datasets", kind=Named(of=_DATASET, name=DATASET_NAME), is_needed=True, about="What is published."),
    ),
)  # fmt: skip
