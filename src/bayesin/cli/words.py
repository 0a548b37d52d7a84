"""Numbers as people say them."""


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever is short.

    Example:
        >>> duration(42), duration(600), duration(9000)
        ('42 seconds', '10 minutes', '2.5 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
