"""What every client of a service that runs jobs shares: following a job, Google's errors, a Kubernetes API server."""
