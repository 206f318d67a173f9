"""Text into trees and values: finding files, quantities with units, complaints with places."""
