"""What methods read: data sets, outputs on request, streams, texts and the policy protocol."""
