"""How much a deployment holds inside its SLO, and how little hardware holds what is asked."""
