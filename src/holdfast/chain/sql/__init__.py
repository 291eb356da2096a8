"""Chains whose records live in a SQL database. The tables are in `schema.py`, the protocol in `moving.py`."""

from holdfast.chain.sql.async_records import AsyncSqlRecords
from holdfast.chain.sql.chains import RegisteredChain, find_chain, list_chains
from holdfast.chain.sql.migration import Migrated, SchemaStatus, migrate, schema_status
from holdfast.chain.sql.records import SqlRecords
from holdfast.chain.sql.schema import SCHEMA_VERSION
from holdfast.chain.sql.url import SqlUrl, is_sql_url, parse_sql_url

__all__ = [
    "SCHEMA_VERSION",
    "AsyncSqlRecords",
    "Migrated",
    "RegisteredChain",
    "SchemaStatus",
    "SqlRecords",
    "SqlUrl",
    "find_chain",
    "is_sql_url",
    "list_chains",
    "migrate",
    "parse_sql_url",
    "schema_status",
]
