"""One module per page, in folders by subject: its addresses, and what is behind them (`web/page.py`)."""
