"""OpenTelemetry of agents, as far as it says which skills they followed."""
