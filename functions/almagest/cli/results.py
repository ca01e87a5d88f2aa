"""A ranked answer, as a table that a person can read: a line of text for each result, and how it was answered."""

from typing import TYPE_CHECKING

from almagest.cli import output

if TYPE_CHECKING:
    from rich.text import Text

    from almagest.models.search import SearchResponse, SearchResult

SCORES = ("keyword", "vector", "hybrid", "strength")
ANSWERED_BY = {
    "hybrid": "by words and meaning",
    "vector": "by meaning alone",
    "lexical": "by words alone",
    "substring": "by the text as it stands alone",
}
REASONS = {
    "no_embedding": "the question came without a vector",
    "model_missing": "the embedding model is not there",
    "model_corrupt": "the embedding model's files are damaged",
    "model_unknown": "ALMAGEST_MODEL names an unknown model",
    "model_dimension": "the embedding model's vectors do not have 384 dimensions",
    "embedder_failed": "the embedding model failed on this question",
    "no_known_token": "the embedding model knows no part of this question",
    "no_vectors_of_this_model": "no item has its vectors yet; `almagest index` tells how many wait for them",
    "vector_index_missing": "the vector index is missing; remediation makes it anew",
    "vector_leg_failed": "the search by meaning failed",
    "no_terms_in_query": "the question has no words to search by",
    "keyword_index_missing": "the word index is missing; remediation makes it anew",
    "no_words_indexed": "no item has its words indexed yet",
    "keyword_leg_failed": "the search by words failed",
}


def told_mode(mode: str, reason: str | None) -> str:
    """How an answer was found, and where something was missing, what: in plain words, with the code behind them."""
    if reason is None:
        return mode
    return f"{mode}: answered {ANSWERED_BY[mode]}, since {REASONS.get(reason, 'something was missing')} ({reason})"


def print_results(response: "SearchResponse") -> None:
    """The ranked answer with its scores; how it was found, and how to go on, on standard error."""
    from rich import box
    from rich.table import Table

    output.print_message(f"mode {told_mode(response.mode, response.degraded_reason)}")
    output.print_message(f"trace {response.trace_id}")
    if not response.results:
        output.print_message("Nothing that is known answers this.")
        return
    # As wide as the terminal, and what is too long for it is cut.
    table = Table(box=box.SIMPLE_HEAD, expand=True)
    table.add_column("final", no_wrap=True, width=8)
    table.add_column("scores", no_wrap=True, width=14)
    table.add_column("item", no_wrap=True, overflow="ellipsis", ratio=1)
    for result in response.results:
        scores = {name: score for name in SCORES if (score := getattr(result.scores, name)) is not None}
        figures = "\n".join(f"{name:9}{score:.3f}" for name, score in scores.items())
        table.add_row(f"{result.scores.final:.3f}\n{result.relevance}", figures, told(result))
    output.print_table(table)
    output.print_message("Whole: almagest get ID; a slice and those around it: almagest get ID --around SLICE")
    if response.next_cursor:
        output.print_message(f"More: almagest search --cursor {response.next_cursor}")


def told(result: "SearchResult") -> "Text":
    """A line each for the title, the snippet with the query's words in bold, where it is from, and id and slice."""
    from rich.text import Text

    title = [Text(_line(result.title), style="bold")] if result.title else []
    source = [Text(_line(result.source_ref), style="dim")] if result.source_ref else []
    place = f" slice {result.chunk.position}" if result.chunk else ""
    return Text("\n").join([*title, marked(result), *source, Text(f"{result.id}{place}", style="dim")])


def marked(result: "SearchResult") -> "Text":
    """The snippet of a result as one line, with the words of the query in bold."""
    from rich.text import Text

    text = Text()
    end = 0
    for start, stop in [*result.marks, (len(result.snippet), len(result.snippet))]:
        text.append(_line(result.snippet[end:start])).append(_line(result.snippet[start:stop]), style="bold")
        end = stop
    text.rstrip()
    return text


def _line(text: str) -> str:
    """A part of a text with one space in place of each run of white space, also at its ends."""
    edges = " " * text[:1].isspace(), " " * text[-1:].isspace()
    words = " ".join(text.split())
    return edges[0] + words + edges[1] if words else edges[0]
