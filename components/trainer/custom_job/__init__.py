"""Trains as a custom job of Vertex AI: the step launches it and waits; its replicas train."""
