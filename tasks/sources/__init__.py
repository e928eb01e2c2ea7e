"""Sources of skills: directories, git repositories and uploads."""
