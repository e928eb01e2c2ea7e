"""Data flow within scripts and code blocks: from secrets and downloads to where they do harm."""
