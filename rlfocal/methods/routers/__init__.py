"""One model a document, by what its question tells."""
