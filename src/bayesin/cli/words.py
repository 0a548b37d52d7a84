"""Numbers as people say them."""

LONG, SHORT = ("seconds", "minutes", "hours"), ("s", "min", "h")


def duration(seconds: float, units: tuple[str, str, str] = LONG) -> str:
    """Seconds, minutes or hours, whichever is short.

    Example:
        >>> duration(42), duration(600), duration(9000, SHORT)
        ('42 seconds', '10 minutes', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} {units[0]}"
    return f"{seconds / 60:.0f} {units[1]}" if seconds < 5400 else f"{seconds / 3600:.1f} {units[2]}"
