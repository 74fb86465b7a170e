"""What can go wrong on the bench, without the hall's tables: a measuring machine may not have polars."""


class BenchError(Exception):
    """Something the user can mend; the message says what and which, the hint what to do next."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
