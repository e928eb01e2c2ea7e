"""Operations: the work, its failures, health, settings and tokens."""
