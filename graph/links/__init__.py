"""Links between skills and between passages: mentions, rules, similarity, incremental linking."""
