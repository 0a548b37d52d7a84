"""The laboratory that stands on the library: runs, campaigns, pages, and the figures of two papers."""
