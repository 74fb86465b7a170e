"""The error of the GPU rooms; it needs no polars, which a GPU machine may not have."""


class BenchError(Exception):
    """An error that the user can fix; `hint` says what to do next."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
