"""Plans, comparisons and error tables as words, tables and bars; no decision is made here."""
