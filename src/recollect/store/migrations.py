"""The tables, as functions that are only ever added to. The docs page is printed from what they make."""

import apsw

_CACHE_1 = (
    # One line per session whose events are held; `is_dirty` until its row in memory.db tells the same.
    """CREATE TABLE streams (
        id INTEGER PRIMARY KEY,
        agent TEXT NOT NULL,
        native_id TEXT NOT NULL,
        next_seq INTEGER NOT NULL DEFAULT 1,
        stream_bytes INTEGER NOT NULL DEFAULT 0,
        pack_generation INTEGER NOT NULL DEFAULT 1,
        pack_bytes INTEGER NOT NULL DEFAULT 0,
        is_dirty INTEGER NOT NULL DEFAULT 1,
        discovered_ms INTEGER NOT NULL,
        UNIQUE (agent, native_id)
    )""",
    """CREATE TABLE events (
        id INTEGER PRIMARY KEY,
        stream INTEGER NOT NULL,
        event_uid BLOB NOT NULL,
        seq INTEGER NOT NULL,
        parent_uid BLOB,
        lane TEXT NOT NULL,
        position INTEGER NOT NULL,
        native_id TEXT NOT NULL,
        ts_ms INTEGER,
        kind TEXT NOT NULL,
        base_kind TEXT,
        role TEXT,
        tool TEXT,
        call_id TEXT,
        status TEXT,
        flags INTEGER NOT NULL DEFAULT 0,
        copy_of BLOB,
        copy_key INTEGER,
        retry_key BLOB,
        summary TEXT NOT NULL,
        payload_start INTEGER,
        payload_bytes INTEGER,
        payload_hash BLOB NOT NULL,
        model TEXT,
        provider TEXT,
        content_type TEXT,
        input_tokens INTEGER,
        output_tokens INTEGER,
        reader INTEGER NOT NULL,
        metadata TEXT
    )""",
    "CREATE UNIQUE INDEX events_by_uid ON events (event_uid)",
    "CREATE INDEX events_by_stream ON events (stream, seq)",
    "CREATE INDEX events_by_copy_key ON events (copy_key) WHERE copy_key IS NOT NULL",
    "CREATE INDEX events_by_copy_of ON events (stream, copy_of) WHERE copy_of IS NOT NULL",
    "CREATE INDEX streams_to_account_for ON streams (id) WHERE is_dirty",
    # A session's payloads are one stream of bytes, cut into frames: small ones here, others in its pack.
    """CREATE TABLE frames (
        stream INTEGER NOT NULL,
        start INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        pack_offset INTEGER,
        pack_bytes INTEGER NOT NULL,
        content BLOB,
        PRIMARY KEY (stream, start)
    ) WITHOUT ROWID""",
    """CREATE TABLE usage (
        stream INTEGER NOT NULL,
        usage_id TEXT NOT NULL,
        ts_ms INTEGER,
        model TEXT,
        provider TEXT,
        input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        cache_read_tokens INTEGER NOT NULL,
        cache_write_tokens INTEGER NOT NULL,
        reasoning_tokens INTEGER NOT NULL,
        usd REAL,
        includes_sub_agents INTEGER NOT NULL,
        is_copy INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (stream, usage_id)
    ) WITHOUT ROWID""",
    """CREATE TABLE cost_totals (
        stream INTEGER NOT NULL,
        ledger TEXT NOT NULL,
        usd REAL NOT NULL,
        ts_ms INTEGER,
        PRIMARY KEY (stream, ledger, usd)
    ) WITHOUT ROWID""",
    """CREATE TABLE sources (
        id INTEGER PRIMARY KEY,
        host TEXT NOT NULL,
        agent TEXT NOT NULL,
        path TEXT NOT NULL,
        kind TEXT NOT NULL,
        size INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL,
        ctime_ns INTEGER NOT NULL,
        inode INTEGER NOT NULL,
        reader INTEGER NOT NULL,
        offset INTEGER NOT NULL,
        line INTEGER NOT NULL,
        head TEXT NOT NULL,
        tail TEXT NOT NULL,
        state TEXT NOT NULL,
        failure TEXT,
        read_ms INTEGER NOT NULL,
        gone_ms INTEGER,
        UNIQUE (host, agent, path)
    )""",
    # What each source tells about a session: a session's facts are merged from all its sources.
    """CREATE TABLE infos (
        agent TEXT NOT NULL,
        native_id TEXT NOT NULL,
        source INTEGER NOT NULL,
        parent_native_id TEXT,
        root_native_id TEXT,
        base_native_id TEXT,
        born_ms INTEGER,
        info TEXT NOT NULL,
        PRIMARY KEY (agent, native_id, source)
    ) WITHOUT ROWID""",
    "CREATE INDEX infos_by_parent ON infos (agent, parent_native_id) WHERE parent_native_id IS NOT NULL",
    "CREATE INDEX infos_by_root ON infos (agent, root_native_id) WHERE root_native_id IS NOT NULL",
    "CREATE INDEX infos_by_base ON infos (agent, base_native_id) WHERE base_native_id IS NOT NULL",
    """CREATE TABLE stream_sources (
        stream INTEGER NOT NULL,
        source INTEGER NOT NULL,
        PRIMARY KEY (stream, source)
    ) WITHOUT ROWID""",
    "CREATE INDEX stream_sources_by_source ON stream_sources (source)",
    """CREATE TABLE problems (
        id INTEGER PRIMARY KEY,
        source INTEGER NOT NULL,
        line INTEGER,
        offset INTEGER,
        reason TEXT NOT NULL,
        raw BLOB NOT NULL,
        found_ms INTEGER NOT NULL,
        UNIQUE (source, offset)
    )""",
)

_CACHE_2 = (
    # The version of the rules that everything held of a session was redacted with, at least; NULL: with none.
    "ALTER TABLE streams ADD COLUMN redacted_with TEXT",
)

_MEMORY_1 = (
    """CREATE TABLE sessions (
        agent TEXT NOT NULL,
        native_session_id TEXT NOT NULL,
        session_uid TEXT NOT NULL,
        root_session_uid TEXT NOT NULL,
        parent_session_uid TEXT,
        base_session_uid TEXT,
        base_end TEXT,
        session_class TEXT NOT NULL,
        "group" TEXT NOT NULL,
        host TEXT,
        repo TEXT,
        domain TEXT,
        cwd TEXT,
        git_root TEXT,
        git_remote TEXT,
        git_branch TEXT,
        model TEXT,
        provider TEXT,
        agent_version TEXT,
        title TEXT,
        instructions TEXT NOT NULL,
        started_ms INTEGER,
        ended_ms INTEGER,
        updated_ms INTEGER,
        outcome TEXT NOT NULL,
        input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        cache_read_tokens INTEGER NOT NULL,
        cache_write_tokens INTEGER NOT NULL,
        reasoning_tokens INTEGER NOT NULL,
        usd REAL,
        usd_is_estimate INTEGER NOT NULL,
        wall_clock_ms INTEGER,
        turns INTEGER NOT NULL,
        retries INTEGER NOT NULL,
        message_count INTEGER NOT NULL,
        event_count INTEGER NOT NULL,
        task_ref TEXT,
        content_hash TEXT,
        spawn_call_id TEXT,
        schema_version INTEGER NOT NULL,
        discovered_ms INTEGER,
        ingested_ms INTEGER,
        analyzed_ms INTEGER,
        evicted_ms INTEGER,
        "key" TEXT,
        channel TEXT,
        chat_id TEXT,
        user_id TEXT,
        character_id TEXT,
        metadata TEXT NOT NULL,
        PRIMARY KEY (agent, native_session_id)
    )""",
    "CREATE UNIQUE INDEX sessions_by_uid ON sessions (session_uid)",
    "CREATE INDEX sessions_by_time ON sessions (ended_ms)",
    "CREATE INDEX sessions_by_root ON sessions (root_session_uid)",
    """CREATE TABLE session_sources (
        agent TEXT NOT NULL,
        native_session_id TEXT NOT NULL,
        host TEXT NOT NULL,
        path TEXT NOT NULL,
        bytes INTEGER NOT NULL,
        gone_ms INTEGER,
        PRIMARY KEY (agent, native_session_id, host, path)
    ) WITHOUT ROWID""",
)


_MEMORY_2 = (
    # Two sessions may be shown by one name: `top/sub`, and `sub` whose root is `top`.
    "DROP INDEX sessions_by_uid",
    "CREATE INDEX sessions_by_uid ON sessions (session_uid)",
    # The user's rules that the rows were made with: one line, or none before the first sweep has ended.
    "CREATE TABLE rules (text TEXT NOT NULL)",
)

_FORGETTING = (
    # Sessions that must not come back, with hashes of their records; `finished_ms` once nothing of them is left.
    """CREATE TABLE tombstones (
        agent TEXT NOT NULL,
        native_id TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        event_keys BLOB NOT NULL,
        finished_ms INTEGER,
        PRIMARY KEY (agent, native_id)
    )""",
    # Sessions that keep what they share with a forgotten one, as the user was asked.
    """CREATE TABLE kept_forks (
        agent TEXT NOT NULL,
        native_id TEXT NOT NULL,
        PRIMARY KEY (agent, native_id)
    ) WITHOUT ROWID""",
    # Sessions left out, from which file and by which rule of the user.
    """CREATE TABLE exclusions (
        agent TEXT NOT NULL,
        native_session_id TEXT NOT NULL,
        host TEXT NOT NULL,
        path TEXT NOT NULL,
        rule TEXT NOT NULL,
        PRIMARY KEY (agent, native_session_id, host, path)
    ) WITHOUT ROWID""",
)


_HISTORY = (
    # One line: how many transactions there were, a name for the last, and whether every page has a checksum.
    """CREATE TABLE history (
        commits INTEGER NOT NULL,
        token TEXT NOT NULL,
        checksums TEXT NOT NULL
    )""",
    "INSERT INTO history VALUES (0, '', 'none')",
    # Tokens that a high-water mark has named: a database without the newest is an older one.
    "CREATE TABLE marks (token TEXT PRIMARY KEY, commits INTEGER NOT NULL) WITHOUT ROWID",
)

_COPIES = (
    # Backups and exports that were made, and what was set aside: they are out of reach, but can be named.
    """CREATE TABLE copies (
        path TEXT PRIMARY KEY,
        kind TEXT NOT NULL,
        made_ms INTEGER NOT NULL
    ) WITHOUT ROWID""",
)

_MEMORY_DISTILLED = (
    # `sealed` is the digest as it was when raw was last dropped: held events extend it. `checked_by` is the
    # distiller that looked last, `digest` NULL where a line in the root's digest is all there is to tell.
    """CREATE TABLE digests (
        id INTEGER PRIMARY KEY,
        agent TEXT NOT NULL,
        native_session_id TEXT NOT NULL,
        ingested_ms INTEGER,
        checked_by INTEGER NOT NULL,
        event_count INTEGER NOT NULL,
        last_event_uid TEXT,
        outcome TEXT NOT NULL,
        confidence REAL NOT NULL,
        line TEXT NOT NULL,
        raw_tokens INTEGER NOT NULL,
        kept_tokens INTEGER NOT NULL,
        digest TEXT,
        digest_hash BLOB,
        sealed TEXT,
        made_ms INTEGER NOT NULL,
        UNIQUE (agent, native_session_id)
    )""",
    "CREATE VIRTUAL TABLE digest_text USING fts5(text, tokenize = 'unicode61 remove_diacritics 2')",
    "INSERT INTO digest_text (digest_text, rank) VALUES ('secure-delete', 1)",
    """CREATE TABLE signals (
        id INTEGER PRIMARY KEY,
        digest INTEGER NOT NULL,
        is_sealed INTEGER NOT NULL,
        signal TEXT NOT NULL,
        ts_ms INTEGER,
        detail TEXT NOT NULL,
        count INTEGER NOT NULL,
        evidence TEXT NOT NULL
    )""",
    "CREATE INDEX signals_by_digest ON signals (digest)",
    "CREATE INDEX signals_by_time ON signals (signal, ts_ms)",
    # A session's work and tokens by hour and model, so that days can be told in any time zone.
    """CREATE TABLE activity (
        digest INTEGER NOT NULL,
        is_sealed INTEGER NOT NULL,
        hour INTEGER NOT NULL,
        model TEXT NOT NULL,
        input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        cache_read_tokens INTEGER NOT NULL,
        cache_write_tokens INTEGER NOT NULL,
        reasoning_tokens INTEGER NOT NULL,
        usd REAL,
        active_ms INTEGER NOT NULL,
        turns INTEGER NOT NULL,
        PRIMARY KEY (digest, is_sealed, hour, model)
    ) WITHOUT ROWID""",
    *(
        f"""CREATE TABLE {table} (
        digest INTEGER NOT NULL,
        is_sealed INTEGER NOT NULL,
        day INTEGER NOT NULL,
        name TEXT NOT NULL,
        uses INTEGER NOT NULL,
        failures INTEGER NOT NULL,
        refusals INTEGER NOT NULL,
        PRIMARY KEY (digest, is_sealed, day, name)
    ) WITHOUT ROWID"""
        for table in ("tool_use", "command_use")
    ),
)

_FULLTEXT = (
    # Up to where a session's stream of payloads is indexed, and the highest seq among them.
    """CREATE TABLE fulltext_marks (
        stream INTEGER PRIMARY KEY,
        generation INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        seq INTEGER NOT NULL
    )""",
    # One line for each table `fts_<month>`, which is made when its month has its first event.
    """CREATE TABLE fulltext_months (
        month TEXT PRIMARY KEY,
        events INTEGER NOT NULL,
        text_bytes INTEGER NOT NULL
    ) WITHOUT ROWID""",
    # Events that were deleted and may still be in the index: numbers are used again.
    "CREATE TABLE fulltext_gone (id INTEGER PRIMARY KEY)",
    """CREATE TRIGGER events_leave_the_index AFTER DELETE ON events BEGIN
        INSERT OR IGNORE INTO fulltext_gone VALUES (OLD.id);
    END""",
)

_MEMORY_EVICTIONS = (
    # Sessions whose raw detail was dropped: hashes of their events, so that none comes back, and their row as it was
    # then, so that a session that grows is never less than it was. `finished_ms` once no byte of it is left.
    """CREATE TABLE evictions (
        agent TEXT NOT NULL,
        native_session_id TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        reason TEXT NOT NULL,
        bytes INTEGER NOT NULL,
        event_keys BLOB NOT NULL,
        base TEXT NOT NULL,
        finished_ms INTEGER,
        PRIMARY KEY (agent, native_session_id)
    )""",
    # What the user must be told of one by one: last copies that went, and what went without a digest.
    """CREATE TABLE retention_events (
        id INTEGER PRIMARY KEY,
        at_ms INTEGER NOT NULL,
        event TEXT NOT NULL,
        agent TEXT NOT NULL,
        native_session_id TEXT NOT NULL,
        session_uid TEXT NOT NULL,
        bytes INTEGER NOT NULL
    )""",
    # One line: when a sweep last looked at ages, so that a clock that jumped is noticed.
    "CREATE TABLE retention_clock (at_ms INTEGER NOT NULL)",
)

_CACHE_EVICTIONS = (
    # Streams whose events were dropped and whose usage is still held, with the half of their events' uids that names
    # the session: copies of them in other sessions are known by it.
    """CREATE TABLE evicted_streams (
        stream INTEGER PRIMARY KEY,
        uid_half BLOB NOT NULL
    )""",
    "CREATE INDEX evicted_streams_by_half ON evicted_streams (uid_half)",
)

_CACHE_UNPROVEN = (
    # Imports once stored texts as an export told them: whatever was held then is looked at by the next rescan.
    "ALTER TABLE streams ADD COLUMN needs_rescan INTEGER NOT NULL DEFAULT 0",
    "UPDATE streams SET needs_rescan = 1",
)


def _run(connection: apsw.Connection, statements: tuple[str, ...]) -> None:
    for statement in statements:
        connection.execute(statement)


def m001_cache(connection: apsw.Connection) -> None:
    _run(connection, _CACHE_1)


def m002_cache(connection: apsw.Connection) -> None:
    _run(connection, _CACHE_2)


def m001_memory(connection: apsw.Connection) -> None:
    _run(connection, _MEMORY_1)


def m002_memory(connection: apsw.Connection) -> None:
    _run(connection, _MEMORY_2)


def m003_cache(connection: apsw.Connection) -> None:
    _run(connection, _HISTORY)


def m004_cache(connection: apsw.Connection) -> None:
    _run(connection, _FULLTEXT)


def m003_memory(connection: apsw.Connection) -> None:
    _run(connection, _FORGETTING)


def m004_memory(connection: apsw.Connection) -> None:
    _run(connection, _HISTORY + _COPIES)


def m005_memory(connection: apsw.Connection) -> None:
    _run(connection, _MEMORY_DISTILLED)


def m005_cache(connection: apsw.Connection) -> None:
    _run(connection, _CACHE_EVICTIONS)


def m006_memory(connection: apsw.Connection) -> None:
    _run(connection, _MEMORY_EVICTIONS)


def m006_cache(connection: apsw.Connection) -> None:
    _run(connection, _CACHE_UNPROVEN)


CACHE = (m001_cache, m002_cache, m003_cache, m004_cache, m005_cache, m006_cache)
MEMORY = (m001_memory, m002_memory, m003_memory, m004_memory, m005_memory, m006_memory)
