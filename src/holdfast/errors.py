"""One error tree, grouped by what a handler would do.

    HoldfastError
    ├── BadInput                 fix the call
    │   ├── InvalidKey           the key is not one a store accepts
    │   ├── ScopeEscape          the key would leave its tenant, workspace or chain
    │   ├── NotAChain            nothing at this place is a chain
    │   ├── BadRows              rows with null, duplicate or oversized keys: nothing was published
    │   │   └── ChecksFailed     rows break a rule of their pipeline: nothing was published
    │   ├── BadPipeline          a pipeline does not fit together: nothing was run
    │   ├── BadSql               a question in SQL cannot be understood
    │   ├── WrongKeyType         the key is not of the data set's key type
    │   ├── UnknownShard         the data set has no shard of this number
    │   ├── ReaderClosed
    │   └── LimitReached         the answer would be larger, or take longer, than was allowed
    ├── NotFound                 the thing asked for is not there
    │   ├── ObjectNotFound
    │   ├── SnapshotNotFound
    │   └── SnapshotCollected    it was collected; `gc restore` may bring it back
    ├── Conflict                 somebody else was first: reload, then decide
    │   ├── AlreadyExists
    │   ├── VersionConflict
    │   ├── LockHeld
    │   ├── RunIdInUse
    │   └── IdempotencyConflict  the key was used for another event: nothing was written
    ├── Fenced                   this writer has lost its right: stop, start a new run
    │   ├── StaleFencingToken
    │   ├── LockLost
    │   ├── PermitRefused
    │   └── RunSwept
    ├── Damaged                  what is stored is not what was written: run `holdfast verify`
    │   ├── CorruptRecord
    │   ├── UnsupportedFormat
    │   ├── InvariantViolation
    │   ├── ReaderStateError
    │   └── CorruptShard         a file of data is missing or not what was written
    ├── BuildFailed              a build stopped: nothing was published
    └── StoreError               the store did not answer or cannot keep its promise
        ├── StoreUnavailable     try again later; a write may or may not have happened
        ├── StoreDenied          the credentials do not allow it
        ├── StoreFull
        ├── LedgerFull           too many events wait to be folded: wait, then append again
        ├── StoreReadOnly
        └── UnsafeStore          conditional writes are ignored there: use another store

Every error says in one line what happened and what to do; none needs a traceback to be understood.
"""

from __future__ import annotations

__all__ = [
    "AlreadyExists",
    "BadInput",
    "BadPipeline",
    "BadRows",
    "BadSql",
    "BuildFailed",
    "ChecksFailed",
    "Conflict",
    "CorruptRecord",
    "CorruptShard",
    "Damaged",
    "Fenced",
    "HoldfastError",
    "IdempotencyConflict",
    "InvalidKey",
    "InvariantViolation",
    "LedgerFull",
    "LimitReached",
    "LockHeld",
    "LockLost",
    "NotAChain",
    "NotFound",
    "ObjectNotFound",
    "PermitRefused",
    "ReaderClosed",
    "ReaderStateError",
    "RunIdInUse",
    "RunSwept",
    "ScopeEscape",
    "SnapshotCollected",
    "SnapshotNotFound",
    "StaleFencingToken",
    "StoreDenied",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreUnavailable",
    "UnknownShard",
    "UnsafeStore",
    "UnsupportedFormat",
    "VersionConflict",
    "WrongKeyType",
]


class HoldfastError(Exception):
    """Anything Holdfast reports. Catch this at the outermost edge only."""


class BadInput(HoldfastError):
    """The call cannot be right. Fix the argument the message names."""


class InvalidKey(BadInput):
    """The key is not one that every store accepts. Use plain relative segments."""


class ScopeEscape(BadInput):
    """The key would leave the scope it was given to; nothing was read or written. Use a key inside it."""


class NotAChain(BadInput):
    """No pointer was found at this place. Check the URL, or name the layout."""


class BadRows(BadInput):
    """Rows cannot be published as they are; nothing was. Fix them, or choose a rule (`on_duplicate`)."""


class ChecksFailed(BadRows):
    """Rows break a rule of their pipeline, so nothing of them was published. Fix the rows, or the rule."""


class BadPipeline(BadInput):
    """A pipeline does not fit together; nothing was run. Fix each of its `problems`: they say where and how."""

    def __init__(self, what: str, *problems: str) -> None:
        number = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(f"{what} has {number}: {' | '.join(problems)}")
        self.what = what
        self.problems = problems

    def __reduce__(self) -> tuple[type[BadPipeline], tuple[str, ...]]:
        return type(self), (self.what, *self.problems)


class BadSql(BadInput):
    """A question in SQL cannot be understood. Fix it where `line` and `column` say, which count from 1."""

    def __init__(self, reason: str, line: int = 0, column: int = 0, suggestion: str = "") -> None:
        where = f"line {line}, column {column}: " if line else ""
        hint = f"; did you mean {suggestion}?" if suggestion else ""
        super().__init__(f"{where}{reason}{hint}")
        self.reason = reason
        self.line = line
        """0, like the column, where nobody knows."""
        self.column = column
        self.suggestion = suggestion
        """What may be meant instead; empty where nothing is near."""

    def __reduce__(self) -> tuple[type[BadSql], tuple[str, int, int, str]]:
        return type(self), (self.reason, self.line, self.column, self.suggestion)


class WrongKeyType(BadInput):
    """The key is not of the data set's key type. `holdfast info` says what its keys are."""


class UnknownShard(BadInput):
    """The data set has no shard of this number. `holdfast shards` lists them."""


class ReaderClosed(BadInput):
    """The reader was closed before this call. Open a new one."""


class LimitReached(BadInput):
    """The answer is larger, or takes longer, than the question may. Use a smaller question, or a higher limit."""


class NotFound(HoldfastError):
    """What was asked for is not there. Check the name: `holdfast history` lists what is."""


class ObjectNotFound(NotFound):
    """The store holds no object at this key. Check the key and the URL of the store."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no object at {key!r}")
        self.key = key

    def __reduce__(self) -> tuple[type[ObjectNotFound], tuple[str]]:
        return type(self), (self.key,)


class SnapshotNotFound(NotFound):
    """No snapshot with this ref, run id, offset or tag was ever visible. `holdfast history` lists them."""


class SnapshotCollected(NotFound):
    """The snapshot was collected. Until it is purged, `holdfast gc restore` brings it back."""


class Conflict(HoldfastError):
    """Somebody else was first. Reload, then decide again."""


class AlreadyExists(Conflict):
    """The key is taken. Read it back before believing that somebody else wrote it: our first answer may be lost."""

    def __init__(self, key: str) -> None:
        super().__init__(f"object {key!r} already exists")
        self.key = key

    def __reduce__(self) -> tuple[type[AlreadyExists], tuple[str]]:
        return type(self), (self.key,)


class VersionConflict(Conflict):
    """The object is no longer at the expected version. Read it back: the write may be ours, with its answer lost."""

    def __init__(self, key: str) -> None:
        super().__init__(f"object {key!r} is not at the expected version")
        self.key = key

    def __reduce__(self) -> tuple[type[VersionConflict], tuple[str]]:
        return type(self), (self.key,)


class LockHeld(Conflict):
    """Another holder has the lock. Wait until it expires or ask its holder; never delete the lock file."""


class RunIdInUse(Conflict):
    """A run with this id was registered before. Choose a new run id, or resume that run."""


class IdempotencyConflict(Conflict):
    """The idempotency key was used for an event with other content. Use a new key for a new event."""


class Fenced(HoldfastError):
    """This writer has lost its right to publish. Stop, and start a new run."""


class StaleFencingToken(Fenced):
    """A writer with a newer lock has published. Stop: acquire the lock again and rebuild on what is visible now."""

    def __init__(self, previous: int, attempted: int) -> None:
        super().__init__(
            f"fencing token {attempted} is behind epoch {previous} of the pointer: a newer lock holder has published; "
            "acquire the lock again and rebuild"
        )
        self.previous = previous
        self.attempted = attempted

    def __reduce__(self) -> tuple[type[StaleFencingToken], tuple[int, int]]:
        return type(self), (self.previous, self.attempted)


class LockLost(Fenced):
    """The lock expired or was taken over. Stop writing; acquire it again for a new run."""


class PermitRefused(Fenced):
    """The permit was used before, has expired or belongs to another chain. Ask the lock's issuer for a new one."""


class RunSwept(Fenced):
    """The collector has declared this run abandoned. Its files may be gone: start a new run."""


class Damaged(HoldfastError):
    """What is stored is not what was written. Run `holdfast verify` to see every break."""


class CorruptRecord(Damaged):
    """A pointer, manifest, lock, run record, move log or tag file is unreadable. Run `holdfast verify`."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key!r} is damaged: {reason}")
        self.key = key
        self.reason = reason

    def __reduce__(self) -> tuple[type[CorruptRecord], tuple[str, str]]:
        return type(self), (self.key, self.reason)


class UnsupportedFormat(Damaged):
    """A newer Holdfast wrote this. Upgrade this reader; nothing is wrong with the data."""


class InvariantViolation(Damaged):
    """A promise of the format would be broken, so nothing was made visible. Report the message: it says which."""


class ReaderStateError(Damaged):
    """No readable snapshot was found, fallbacks included. Run `holdfast verify`, then `holdfast rollback`."""


class CorruptShard(Damaged):
    """A file of data is missing or damaged; none of it is served. Run `holdfast verify`, then `holdfast rollback`."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"shard {key!r} is damaged: {reason}")
        self.key = key
        self.reason = reason

    def __reduce__(self) -> tuple[type[CorruptShard], tuple[str, str]]:
        return type(self), (self.key, self.reason)


class BuildFailed(HoldfastError):
    """A build stopped before its commit; nothing was published. Fix what the message names and run it again."""


class StoreError(HoldfastError):
    """The store did not answer, or cannot keep its promise. Check the store before running again."""


class StoreUnavailable(StoreError):
    """The store did not answer. A write may or may not have happened: ask `status` before doing it again."""


class StoreDenied(StoreError):
    """The store refuses these credentials this operation. Check the policy of the principal."""


class StoreFull(StoreError):
    """No space is left. Nothing became visible; free space and run again."""


class LedgerFull(StoreError):
    """Too many events wait to be folded; nothing was written. Wait `retry_after_s` seconds, then append it again."""

    def __init__(self, domain: str, lag: int, retry_after_s: int) -> None:
        super().__init__(
            f"{lag} events of the {domain!r} ledger wait to be folded, too many to accept another; append it again in "
            f"{retry_after_s} s, and check that the compactor runs"
        )
        self.domain = domain
        self.lag = lag
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[type[LedgerFull], tuple[str, int, int]]:
        return type(self), (self.domain, self.lag, self.retry_after_s)


class StoreReadOnly(StoreError):
    """The store cannot be written to; nothing became visible. Use one that can, or open it for reading only."""


class UnsafeStore(StoreError):
    """This store ignores conditional writes, so two writers could overwrite each other. Use another store."""
