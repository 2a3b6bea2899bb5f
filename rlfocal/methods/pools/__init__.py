"""Methods that choose one pool of models for all documents, on train."""
