"""What the broker says about itself: metrics, log lines, stalls of the event loop."""
