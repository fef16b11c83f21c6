"""Route versions: how a changed route takes effect, and back-fill of added stages."""
