"""What each command does, options already parsed: requests in, results shown and written."""
