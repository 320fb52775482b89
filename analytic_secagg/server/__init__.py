"""The server's side of a deployment: a run, its rounds, deadlines and quorums. No engine in it."""
