"""Access: the sources that a reader may see, and the directories that may become sources."""
