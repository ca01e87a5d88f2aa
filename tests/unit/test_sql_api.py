"""The page on the SQL API says what the files say, and the files say enough."""

import re
from pathlib import Path

import pytest

from almagest.database.sql_api import FILE, Entry, read_entries, read_entry, render_page
from almagest.database.sql_files import sql_directory

ENTRIES = read_entries(sql_directory())
ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / FILE).read_text(encoding="utf-8")
    assert page == render_page(ENTRIES), "run `make docs`"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_function_says_what_it_takes_and_gives(entry: Entry) -> None:
    assert entry.prose
    assert [line.split()[0] for line in entry.contract if not line.startswith(" ")][:2] == ["request", "returns"]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_file_makes_the_one_function_that_it_is_named_after(entry: Entry) -> None:
    text = (sql_directory() / "api" / f"{entry.name}.sql").read_text(encoding="utf-8")
    made = re.findall(r"^create or replace function (\S+)\((.*?)\)\s*returns jsonb", text, re.MULTILINE | re.DOTALL)
    assert made == [(f"api.{entry.name}", "caller jsonb, request jsonb")]


def test_reading_a_comment() -> None:
    text = """-- Does a thing,
-- and then another.
--   request  {a,
--            b}
--   returns  {}
-- A remark.

create or replace function …"""
    assert read_entry("thing", text) == Entry(
        "thing", "Does a thing, and then another. A remark.", ("request  {a,", "         b}", "returns  {}")
    )
