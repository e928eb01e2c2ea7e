"""Operations: work, its failures, health, settings and tokens."""
