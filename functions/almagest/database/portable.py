"""What an export holds: which rows of which tables, in which order, and what of them is left behind.

An export is JSON Lines: a header, a line for each row, an end that counts them. The same data give the same bytes.
No row names its org: an import puts all of them into one org, so none can come to lie in another.
"""

from dataclasses import dataclass

FORMAT = 1


@dataclass(frozen=True)
class Table:
    """A table of an export.

    Attributes
    ----------
    name
        In schema `almagest`.
    order
        SQL of a total order over its rows `t`.
    of_item
        Whether each row belongs to an item; who may see it is then taken from the item, and stands in no line.
    personal
        SQL of the condition under which a row is a person's own, `%(user)s`; None: an export of a person has none.
    left_out
        Columns that say nothing elsewhere: numbers of this database, leases, and what an import sets itself.
    """

    name: str
    order: str
    of_item: bool = False
    personal: str | None = None
    left_out: tuple[str, ...] = ()


_OWN_ITEM = "exists (select from almagest.items as i where i.id = t.item_id and i.user_id = %(user)s)"
# Each folder once: one that lies in itself, by whatever way, ends too.
_DEPTH = (
    "(with recursive up as (select t.parent_id as id union select f.parent_id from almagest.folders as f"
    " join up on f.id = up.id) select count(*) from up)"
)
# What items hand down to the rows that belong to them.
SCOPE = ("user_id", "client_id", "deal_id", "agent_ids")

# In the order in which each finds what it refers to.
TABLES = (
    Table("members", "t.user_id"),
    Table("agents", "t.id"),
    Table("clients", "t.id"),
    Table("deals", "t.id"),
    Table("projects", "t.id"),
    Table("member_scopes", "t.id"),
    Table("item_types", "t.name"),
    Table("search_profiles", "t.name"),
    Table("retention", "t.org_id"),
    Table("policies", "t.id"),
    Table("variables", "t.id"),
    Table("folders", f"{_DEPTH}, t.id"),
    Table(
        "items",
        "t.created_at, t.id",
        personal="t.user_id = %(user)s",
        left_out=("index_attempts", "index_after", "lease_owner", "lease_expires_at"),
    ),
    Table("item_versions", "t.item_id, t.version", of_item=True, personal=_OWN_ITEM),
    Table("item_tags", "t.item_id, t.tag, t.source", of_item=True, personal=_OWN_ITEM),
    Table("item_agents", "t.item_id, t.agent_id", of_item=True, personal=_OWN_ITEM),
    Table("strength_signals", "t.item_id", of_item=True, personal=_OWN_ITEM),
    Table("chunks", "t.id", of_item=True, personal=_OWN_ITEM, left_out=("id",)),
    Table("facts", "t.item_id", of_item=True, personal=_OWN_ITEM),
    Table("pins", "t.item_id, t.id", personal=f"t.user_id = %(user)s and {_OWN_ITEM}"),
    Table("audit_log", "t.id", personal=f"t.user_id = %(user)s and {_OWN_ITEM}", left_out=("id",)),
)

# Every other table, and why it stays behind.
STAYS = {
    "orgs": "is the header",
    "api_keys": "credentials are made anew, and their hashes leave no database",
    "usage": "counts of keys, which stay",
    "idempotency_keys": "answers to retries of the last days",
    "retrievals": "what people asked is theirs alone, and ends by itself",
    "activations": "as the traces; what they did to strength is in the signals",
    "lexical": "made again from the chunks",
    "embeddings": "in the lines of the chunks",
    "embedding_models": "named by the vectors",
    "partition_statistics": "counted again",
    "term_statistics": "counted again",
    "job_runs": "of the installation, not of an org",
    "job_steps": "of the installation, not of an org",
    "health_runs": "of the installation, not of an org",
    "health_checks": "of the installation, not of an org",
    "remediations": "of the installation, not of an org",
    "hub_feed": "told of what was wrong here, not of what an org knows",
    "hub_marks": "of the entries, which stay",
    "migrations": "of the database, not of an org",
    "code_files": "of the database, not of an org",
    "made_objects": "of the database, not of an org",
}

# What of an item is a person's who takes it elsewhere: not who wrote it, since that is this person.
LEFT_OUT_OF_A_PERSONS = {
    "items": ("user_id", "author_user_id"),
    "pins": ("user_id",),
    "audit_log": ("user_id", "actor_user_id", "actor_agent_id", "actor_key_id"),
}


def left_out(table: Table, *, personal: bool) -> set[str]:
    """Columns of a table that stand in no line."""
    columns = {"org_id", *table.left_out}
    if table.of_item:
        columns.update(SCOPE)
    if personal:
        columns.update(LEFT_OUT_OF_A_PERSONS.get(table.name, ()))
    return columns
