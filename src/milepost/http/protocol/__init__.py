"""What an endpoint is: requests, answers, problems (RFC 9457), headers and paths."""
