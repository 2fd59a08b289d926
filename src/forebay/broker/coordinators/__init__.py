"""Group and transaction coordinators: one runtime, the machines it runs, and the markers they write."""
