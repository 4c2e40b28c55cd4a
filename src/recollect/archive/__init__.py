"""Sessions as documents: Markdown and HTML to read and share, JSON with everything, digests as a folder of pages."""

from recollect.archive import html
from recollect.archive.documents import (
    FORMATS,
    Detail,
    digest_name,
    document_name,
    patches,
    render,
    write_named,
    write_new,
)
from recollect.archive.html import (
    Exchange,
    Step,
    SubAgent,
    diffs_by_event,
    files_changed,
    read_exchanges,
    require_web_parts,
)
from recollect.archive.wording import compact
