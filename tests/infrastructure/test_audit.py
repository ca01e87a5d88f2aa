"""Known vulnerabilities of what is locked, where the advisory service can be asked."""

import pytest

from infra.supply.audit import Unreachable, audit
from tests.infrastructure.tools import tool


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_nothing_is_known_against_what_is_locked() -> None:
    try:
        found = audit(program=tool("pip-audit"))
    except Unreachable as error:
        pytest.skip(f"the advisory service could not be asked: {error}")
    assert found == []
