"""Settings, logging and the error hierarchy: what every room may use."""
