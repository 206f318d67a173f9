"""A plan or a sweep as one web page that needs no network."""
