"""Calls over a plain connection of which each ends after a time: the base of what health and remediation ask."""

from typing import Any

import psycopg

from almagest.database.session import limited


class Limited:
    """Statements on one connection, each within a time that may be set.

    Parameters
    ----------
    connection
        In autocommit mode.
    """

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self._seconds: float | None = None

    def limit(self, seconds: float | None) -> None:
        """End each statement from now on that takes longer; None: as long as the role's statements may take."""
        self._seconds = seconds

    def _rows(self, statement: str, *parameters: object) -> list[Any]:
        with limited(self._connection, self._seconds):
            return self._connection.execute(statement.encode(), parameters or None).fetchall()

    def _value(self, statement: str, *parameters: object) -> Any:
        [(value,)] = self._rows(statement, *parameters)
        return value
