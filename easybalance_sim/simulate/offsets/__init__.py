"""Router offsets in a closed loop: what experts the recorded tokens would have chosen under a controller that only sees
the loads of steps that have run."""
