"""Long-running processes: serve, workers, supervisor, watcher."""
