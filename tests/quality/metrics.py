"""Measures of a ranking against judgements; all are 0..1, higher is better."""

from collections.abc import Collection, Mapping, Sequence
from math import log2


def ndcg_at(k: int, ranking: Sequence[str], grades: Mapping[str, int]) -> float:
    """Normalised discounted cumulative gain of the first ``k``, with gain 2^grade - 1.

    Parameters
    ----------
    ranking
        Ids, best first; one that comes again counts for nothing.
    grades
        Id -> grade, 0 or more; what is not listed has grade 0.

    Raises
    ------
    ValueError
        When no id has a grade above 0: then there is nothing to find.

    Examples
    --------
    >>> ndcg_at(10, ["b", "a"], {"a": 3, "b": 1})
    0.7098...
    """
    best = _gain(sorted(grades.values(), reverse=True)[:k])
    if not best:
        raise ValueError("nothing is relevant")
    unique = list(dict.fromkeys(ranking))[:k]
    return _gain([grades.get(identifier, 0) for identifier in unique]) / best


def recall_at(k: int, ranking: Sequence[str], relevant: Collection[str]) -> float:
    """Share of the relevant ids that are among the first ``k``.

    Raises
    ------
    ZeroDivisionError
        When nothing is relevant.
    """
    wanted = set(relevant)
    return len(wanted & set(ranking[:k])) / len(wanted)


def reciprocal_rank(ranking: Sequence[str], relevant: Collection[str]) -> float:
    """One over the rank of the first relevant id; 0 when there is none."""
    return next((1 / rank for rank, identifier in enumerate(ranking, 1) if identifier in relevant), 0.0)


def mean(values: Collection[float]) -> float:
    """Arithmetic mean; of reciprocal ranks it is the MRR."""
    return sum(values) / len(values)


def _gain(grades: Sequence[int]) -> float:
    return sum((2.0**grade - 1) / log2(rank + 1) for rank, grade in enumerate(grades, 1))
