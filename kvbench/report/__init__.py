"""Charts of results, with Altair; they need the extra ``report``."""
