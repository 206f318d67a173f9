"""What maintainers run: fits of shipped profiles, prediction intervals, accuracy pages."""
