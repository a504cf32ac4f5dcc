"""`ebsim offload`: how much of a model's experts has to be on the GPU."""
