"""The persisted state of share partitions: loaded from share coordinators, confirmed, and written back."""
