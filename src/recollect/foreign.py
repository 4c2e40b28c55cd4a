"""What another store tells, as this one may hold it: redacted by its own rules before anything is stored."""

import dataclasses
from typing import Any

from recollect.protection import protected_json, protected_line, protected_names, without_secrets
from recollect.redact.redactor import Redactor
from recollect.store.adopting import AdoptedSource, Adoption
from recollect.store.batch import CostTotalRow, EventRow, UsageRow, hash_payload


def protected_adoption(redactor: Redactor, adoption: Adoption) -> Adoption:
    """A session to take over without its secrets: every text of it, whoever let them pass before."""
    rows, payloads = _protected_events(redactor, adoption.rows, adoption.payloads)
    usage = [row._replace(native_id=adoption.native_id) for row in adoption.usage]
    totals = [row._replace(native_id=adoption.native_id) for row in adoption.cost_totals]
    return dataclasses.replace(
        adoption,
        sources=[_protected_source(redactor, source) for source in adoption.sources],
        rows=rows,
        payloads=payloads,
        usage=[UsageRow(row.native_id, *protected_names(redactor, row[1:])) for row in usage],
        cost_totals=[CostTotalRow(row.native_id, *protected_names(redactor, row[1:])) for row in totals],
        redacted_with=redactor.version,
    )


def _protected_events(
    redactor: Redactor, told: list[EventRow], content: list[bytes]
) -> tuple[list[EventRow], list[bytes]]:
    rows, payloads = list(told), list(content)
    for number, payload, secrets in redactor.iter_changed(content):
        payloads[number] = payload
        row = EventRow._make(without_secrets(redactor, rows[number], secrets))
        rows[number] = row._replace(payload_bytes=len(payload), payload_hash=hash_payload(payload))
    for number in redactor.suspects(["\n".join(text for text in row if isinstance(text, str)) for row in rows]):
        row = rows[number]
        metadata = protected_json(redactor, [row.metadata.encode()])[0].decode() if row.metadata else None
        rows[number] = EventRow._make(protected_names(redactor, row))._replace(metadata=metadata)
    return rows, payloads


def _protected_source(redactor: Redactor, source: AdoptedSource) -> AdoptedSource:
    row = source.row
    return AdoptedSource(
        row._replace(
            host=redactor.functional(row.host), path=redactor.functional(row.path), kind=redactor.functional(row.kind)
        ),
        protected_json(redactor, [source.info.encode()])[0].decode() if source.info else None,
        tuple(tuple(_protected(redactor, value) for value in problem) for problem in source.problems),
    )


def _protected(redactor: Redactor, value: Any) -> Any:
    if isinstance(value, bytes):
        return protected_line(redactor, value)
    return redactor.text(value) if isinstance(value, str) else value
