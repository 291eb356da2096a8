"""The workspace catalog: everything that was ever published, as events in a ledger and as domains folded from them."""

__all__: list[str] = []
