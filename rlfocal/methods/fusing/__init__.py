"""Methods that ask all models of a pool and fuse their outputs."""
