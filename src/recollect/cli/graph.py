"""The command that shows facts as a graph: graph."""

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import click

from recollect.cli.filters import filter_options
from recollect.cli.fresh import open_fresh
from recollect.cli.output import emit, json_option, limit_option, reports_errors
from recollect.cli.terminal import fitted, grey, line_columns, one_line, plural
from recollect.recall import Filters

if TYPE_CHECKING:
    from recollect.knowledge import Graph

_SHOWN = 60


@click.command()
@click.argument("entity", nargs=-1)
@click.option("--around", metavar="ENTITY", help="Only facts near this file, command, error or setting.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "dot", "json", "html", "svg"]),
    default="text",
    help="Print text (default), dot for Graphviz, json, html, or svg.",
)
@filter_options
@limit_option("nodes", _SHOWN)
@json_option
@reports_errors
def graph(
    entity: tuple[str, ...], around: str | None, format_: str, filters: Filters, limit: int | None, as_json: bool
) -> None:
    """Show how commands, errors, files and decisions relate.

    With ENTITY, only facts near it, as with --around. The HTML is one file with a picture in it; it needs no network
    and no other file.

    \b
    recollect graph --here
    recollect graph pool.py
    recollect graph --format html > graph.html
    """
    as_json = as_json or format_ == "json"
    around = " ".join(entity) or around
    with open_fresh() as memory:
        graph = memory.knowledge.graph(filters, around=around, limit=limit if as_json else limit or _SHOWN)
        document = memory.knowledge.graph_document(graph, format_) if format_ not in ("text", "json") else None
    if document is None or as_json:
        emit(graph, as_json, _graph_lines)
    else:
        click.echo(document, nl=False)


def _graph_lines(graph: "Graph") -> Iterator[str]:
    """Each node that an edge leads from, with what it leads to."""
    nodes = {node.id: node for node in graph.nodes}
    by_source = sorted(graph.edges, key=lambda edge: (nodes[edge.source].kind, nodes[edge.source].name))
    for source, edges in groupby(by_source, key=lambda edge: nodes[edge.source]):
        yield fitted(f"{source.kind}  {one_line(source.name)}", line_columns())
        for edge in sorted(edges, key=lambda edge: (-len(edge.fact_uids), edge.predicate, nodes[edge.target].name)):
            times = f" ×{len(edge.fact_uids)}" if len(edge.fact_uids) > 1 else ""
            verb, target = edge.predicate.replace("_", " "), nodes[edge.target]
            yield fitted(f"  {verb}{times} → {target.kind}  {one_line(target.name)}", line_columns())
    if graph.hidden:
        total = len(graph.nodes) + graph.hidden
        yield grey(f"{len(graph.nodes):,} of {plural(total, 'node')} · more: --limit {total}")
    if not graph.nodes:
        yield "No facts yet: a sweep reads your sessions"


COMMANDS = (graph,)
