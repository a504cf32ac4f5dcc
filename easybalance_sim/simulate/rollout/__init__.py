"""Taking a new plan into service on a running EP group: the protocol, its faults, and every order of events."""
