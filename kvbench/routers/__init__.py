"""Router policies in Python: a prefix term, a load term, and a rule for ties.

base.py    what they derive from
terms.py   prefix terms and load terms, written once
ties.py    who of several equal workers
"""

from kvbench.routers.base import Router
from kvbench.routers.terms import Load

__all__ = ["Load", "Router"]
