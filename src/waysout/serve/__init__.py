"""The service: searches over HTTP, for a team's programs and for the page that stands on it."""
