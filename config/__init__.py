"""Settings, secrets, logging and the error hierarchy; imports no other package of skillbus."""
