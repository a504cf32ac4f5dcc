"""The `.cu` files compiled by g++ and run on the CPU, under a stand-in for cupy that is as strict as a device."""
