"""What an upgrade of skillbus does to a library: another index, skills parsed again."""
