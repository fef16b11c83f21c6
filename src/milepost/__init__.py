"""Milepost sees every item through."""
