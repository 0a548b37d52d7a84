"""The page in a real browser; a package, since pytest wants one name for each conftest."""
