"""Upstairs: questions that need several rooms, each study one verb."""
