"""Which checks there are, in the order in which they are made."""

from almagest.operations.health import (
    canary_quality,
    crud_integrity,
    embedding_function,
    orphaned_embeddings,
    semantic_accuracy,
    staleness,
    table_access,
)
from almagest.operations.health.check import Check

CHECKS: dict[str, Check] = {
    module.CHECK.name: module.CHECK
    for module in (
        table_access,
        embedding_function,
        semantic_accuracy,
        crud_integrity,
        orphaned_embeddings,
        staleness,
        canary_quality,
    )
}
