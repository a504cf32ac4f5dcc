"""Why the experts of a plan have their replicas: loads, company, and what one replica fewer or more would do."""
