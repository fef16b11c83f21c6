"""Fetch stages: metadata from Crossref, mapped for DSpace, and the PDF from the publisher."""
