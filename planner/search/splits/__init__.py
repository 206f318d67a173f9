"""The best split of a model's layers over pipeline stages and virtual stages."""
