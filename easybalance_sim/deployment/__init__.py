"""What requests get of a deployment: a scenario served with one plan and with another."""
