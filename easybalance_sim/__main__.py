"""`python -m easybalance_sim` is `ebsim`."""

from easybalance_sim.cli.app import start

if __name__ == "__main__":
    start()
