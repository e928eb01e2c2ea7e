"""Long-running processes: serve, gateway, workers and their supervisor, and the file watcher."""
