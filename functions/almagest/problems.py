"""Problems a caller can be told about: a status, a stable code and one clear sentence."""

# After a fault of the database or the deployment: long enough for a restart, short enough for who waits.
RETRY_AFTER_SECONDS = 5


class Problem(Exception):
    """What went wrong, as RFC 9457 has it.

    Parameters
    ----------
    status
        HTTP status, 400..599.
    code
        Stable snake_case name that programs may depend on.
    detail
        One sentence for a person; never SQL, a traceback or another tenant's name.
    retry_after
        Seconds after which a retry may succeed (429 and 503).
    """

    def __init__(self, status: int, code: str, detail: str, *, retry_after: int | None = None, **extra: object) -> None:
        super().__init__(f"{code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail
        self.retry_after = retry_after
        self.extra = extra
