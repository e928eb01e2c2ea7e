"""Weak signals: common in honest skills, suspicious in combination."""
