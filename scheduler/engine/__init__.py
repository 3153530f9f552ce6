"""The machinery that fires, claims, runs, recovers and writes back."""
