"""One module per page: its addresses, and what is behind them (`web/page.py`)."""
