"""ebsim: plans where the experts of a Mixture-of-Experts model live, judged on traffic the planner did not see."""

__version__ = "0.1.0"
