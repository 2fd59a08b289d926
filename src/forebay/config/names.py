"""Names of topics, groups and users, and white space around them.

The checked name has to be the name that is used: " audit" must not bypass a rule that denies "audit". So
  - a name in the value of a setting has no white space around it, as no value has: it is cut off at the edge,
    before anything looks at the value (requests: `core/guards/canonical.py`, files: `Definition.parse`);
  - a name in a field of a request is taken as it is. Where no topic or user can have it, it is refused.

A certificate's name may end in a space, which is then escaped with a backslash and belongs to the name.
"""

from __future__ import annotations

WHITE_SPACE = "white space around it, which no {what} has: leave that out"


def trimmed(name: str) -> str:
    """The text without the white space around it."""
    bare = name.strip()
    if bare.endswith("\\") and not bare.endswith("\\\\") and name.lstrip().startswith(f"{bare} "):
        return f"{bare} "
    return bare


def is_trimmed(name: str) -> bool:
    return trimmed(name) == name
