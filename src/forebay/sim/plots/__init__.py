"""The plots of stories: which actors, faults and settings put one rule to the test."""
