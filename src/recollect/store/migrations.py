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

_CACHE_2 = (
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


def _run(connection: apsw.Connection, statements: tuple[str, ...]) -> None:
    for statement in statements:
        connection.execute(statement)


def m001_cache(connection: apsw.Connection) -> None:
    _run(connection, _CACHE_1)


def m001_memory(connection: apsw.Connection) -> None:
    _run(connection, _MEMORY_1)


def m002_memory(connection: apsw.Connection) -> None:
    _run(connection, _MEMORY_2)


def m002_cache(connection: apsw.Connection) -> None:
    _run(connection, _CACHE_2)


CACHE = (m001_cache, m002_cache)
MEMORY = (m001_memory, m002_memory)
