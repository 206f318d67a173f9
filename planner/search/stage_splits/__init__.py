"""The best split of a layout's layers over its pipeline stages and virtual stages."""
