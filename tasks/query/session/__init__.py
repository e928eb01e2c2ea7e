"""Sessions: what an agent was sent before is not sent again, and its obstacles are answered."""
