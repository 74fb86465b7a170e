"""Questions that need several packages, each study one verb."""
