"""What methods read: data sets, outputs on request, streams and texts; and the protocol that policies
follow."""
