"""Which chains a database has: their names, their layouts, and where their artifacts are.

So a chain can be opened by the database's URL alone: `sqlite:///catalog.db?chain=users`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.chain.sql.database import Database, database_at
from holdfast.chain.sql.reading import Place
from holdfast.chain.sql.url import parse_sql_url
from holdfast.errors import BadInput, NotAChain

__all__ = ["RegisteredChain", "check_chain", "find_chain", "list_chains", "register_chain"]

_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredChain:
    """One row: a chain, what it is, and where its artifacts are."""

    chain: str
    layout: str
    artifacts: str


def check_chain(database: Database, place: Place, *, artifacts: str) -> bool:
    """Whether the chain is written down; BadInput if it is there as something else."""
    found = _read(database, place.chain)
    if found is None:
        return False
    if found.layout != place.layout.name:
        raise BadInput(
            f"chain {place.chain!r} is a {found.layout} chain, not a {place.layout.name} one; choose another name"
        )
    if artifacts and found.artifacts != artifacts:
        raise BadInput(
            f"chain {place.chain!r} keeps its artifacts at {found.artifacts}, not at {artifacts}; choose another name"
        )
    return True


def register_chain(database: Database, place: Place, *, artifacts: str, now: datetime) -> None:
    """Write the chain down unless it is there."""
    values = (place.chain, place.layout.name, artifacts, place.dialect.time(now))
    database.write(
        lambda tx: tx.run(
            "INSERT INTO holdfast_chains (chain, layout, artifacts, created_at) VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO NOTHING",
            values,
        )
    )


def list_chains(url: str) -> list[RegisteredChain]:
    """Every chain of a database, by name."""
    rows = database_at(parse_sql_url(url)).rows("SELECT chain, layout, artifacts FROM holdfast_chains ORDER BY chain")
    return [RegisteredChain(chain=chain, layout=layout, artifacts=artifacts) for chain, layout, artifacts in rows]


def find_chain(url: str, *, artifacts: str | None = None, layout: str | None = None) -> RegisteredChain:
    """The chain that the URL names, or the only one that fits; NotAChain says what there is instead."""
    place = parse_sql_url(url)
    chains = list_chains(url)
    fits = [
        one
        for one in chains
        if place.chain in (None, one.chain) and artifacts in (None, one.artifacts) and layout in (None, one.layout)
    ]
    if len(fits) == 1:
        return fits[0]
    names = ", ".join(repr(one.chain) for one in (fits or chains)[:_SHOWN_MAX]) or "none at all"
    if fits:
        raise NotAChain(f"more than one chain in {place.public}: name one with ?chain=NAME ({names})")
    wanted = "chain here" if place.chain is None else f"chain {place.chain!r}"
    raise NotAChain(f"no {wanted} in {place.public}; there is {names}. Check the name, or publish to it first")


def _read(database: Database, chain: str) -> RegisteredChain | None:
    rows = database.rows("SELECT layout, artifacts FROM holdfast_chains WHERE chain = ?", (chain,))
    return None if not rows else RegisteredChain(chain=chain, layout=rows[0][0], artifacts=rows[0][1])
