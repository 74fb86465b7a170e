"""Foreign files as rows: archives, delimited text, JSON, timestamps; every row kept or rejected with a reason."""
