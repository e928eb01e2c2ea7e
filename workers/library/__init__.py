"""Views and operations on a library that several interfaces share."""
