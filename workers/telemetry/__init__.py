"""OpenTelemetry of agents: the events that say which skills they followed."""
