"""Sessions as documents: Markdown and HTML to read and share, JSON with everything, digests as a folder of pages."""

from recollect.archive.documents import FORMATS as FORMATS
from recollect.archive.documents import Detail as Detail
from recollect.archive.documents import render as render
from recollect.archive.files import digest_name as digest_name
from recollect.archive.files import document_name as document_name
from recollect.archive.files import write_named as write_named
from recollect.archive.files import write_new as write_new
