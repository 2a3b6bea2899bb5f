"""One pool of models for all documents, chosen on train."""
