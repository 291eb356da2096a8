"""The first file of somebody who has none: it is right as it is, and says beside each line what else there is."""

from __future__ import annotations

__all__ = ["first_file"]

_FILE = '''\
# A pipeline: what is read, the SQL over it, and the data sets that are published.
#   holdfast pipeline check {file}     says what is wrong, and shows the plan
#   holdfast run {file}                makes it
# docs/pipeline-file.md explains every key; `holdfast pipeline schema` prints a JSON schema for editors.

name = "{name}"
description = "What users have bought."
owner = "data@example.com"
# workspace = "s3://bucket/lake/acme/prod"       # where data sets are; HOLDFAST_WORKSPACE if left out

# Values that change from run to run: holdfast run {file} --param day=2026-11-16
[parameters]
day = 2026-11-15
least_price = 0

# Settings of the Spark session, by their own names.
[spark]
spark.sql.shuffle.partitions = 8

# What is read. The name is what SQL calls it.
[sources.orders]
path = "data/${{day}}/orders.csv"                 # a file, a folder, a pattern or a URL
format = "csv"                                  # parquet if left out
options = {{ header = true }}
schema = "id BIGINT, user_id BIGINT, price DOUBLE, at TIMESTAMP"

# A data set of the workspace may be read too; the very snapshot is pinned.
# [sources.users]
# dataset = "users"                             # and version = 3, or tag = "release=stable"

# One query each, over sources and other steps; the order is found from the SQL. :name is a parameter's value.
[steps.paid]
sql = """
SELECT id, user_id, price, at
FROM orders
WHERE price > :least_price
"""

[steps.totals]
description = "One row for each user."
sql = """
SELECT user_id, count(*) AS orders, sum(price) AS total, max(at) AS last_at
FROM paid
GROUP BY user_id
"""                                             # or file = "totals.sql"

# What is published. Checks come first: if one fails, nothing is published.
[datasets.user_totals]
kind = "kv"                                     # look rows up by key
from = "totals"
key = "user_id"
shards = 4                                      # or rows_per_shard = 1_000_000
description = "Orders and money by user."
tags = {{ day = "${{day}}" }}
checks = [
  {{ not_null = ["user_id"] }},
  {{ range = {{ column = "total", min = 0 }} }},
  {{ rows = {{ min = 1 }} }},
  {{ change = {{ fewer = 0.5 }} }},
]

[datasets.paid_orders]
kind = "table"                                  # Parquet files, for whoever reads them
from = "paid"

# A graph has nodes (semantic_id, type) and edges (source, target, type).
# [datasets.bought_together]
# kind = "graph"
# nodes = "products"
# edges = "pairs"
'''


def first_file(name: str, file: str) -> str:
    """Its text; `file` is what it will be called in the commands it shows."""
    return _FILE.format(name=name, file=file)
