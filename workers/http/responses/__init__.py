"""What responses share: headers, tags, and those to `HEAD`."""
