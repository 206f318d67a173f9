"""The legal layouts of a scenario, grown key by key, and how a search section restricts them."""
