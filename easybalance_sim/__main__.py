"""`python -m easybalance_sim` is `ebsim`."""

from easybalance_sim.cli.app import main

if __name__ == "__main__":
    main()
