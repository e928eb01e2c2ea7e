"""What runs skillbus and its servers; nothing of the application imports it."""
