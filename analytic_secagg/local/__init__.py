"""A deployment of processes on one host that speak TLS over loopback, to see and to break: no other software."""
