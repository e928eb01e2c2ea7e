"""Links between skills: where they come from and how they are weighted."""
