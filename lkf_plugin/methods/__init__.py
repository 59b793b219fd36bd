"""One file per method: what it trains, how it draws, and what its likelihood means."""
