"""A Flower app that runs the sessions of `secagg` between real hosts."""
