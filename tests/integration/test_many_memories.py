"""Five hundred memories through the function URLs, and each found again by its own words."""

import random
from itertools import product
from typing import Any

from tests.client import Client
from tests.stack import Stack

WORDS = ["".join(letters) for letters in product("bdgklmprtv", "aeiou", "dgklmnprt")]
SEED = 20


def memories(count: int) -> list[dict[str, Any]]:
    """Sentences of the same few words, so that only their combination tells one from another."""
    draw = random.Random(SEED)  # noqa: S311 - a fixed draw, not a secret
    return [
        {"content": f"The {' '.join(draw.sample(WORDS, 8))} was moved in week {number}.", "source_ref": f"m{number}"}
        for number in range(count)
    ]


def test_each_of_twenty_is_first_by_its_own_words(stack: Stack) -> None:
    written = memories(500)
    with Client(stack.url, stack.key) as client:
        results = client.write(written)
        assert len({result["id"] for result in results}) == 500
        client.wait_for_index()
        sampled = random.Random(SEED).sample(written, 20)  # noqa: S311
        firsts = [client.search(memory["content"], 1)["results"][0]["source_ref"] for memory in sampled]
    assert firsts == [memory["source_ref"] for memory in sampled]
