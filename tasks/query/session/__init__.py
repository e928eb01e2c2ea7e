"""Sessions: passages that were sent before are not sent again, and obstacles are answered."""
