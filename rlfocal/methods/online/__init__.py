"""Who learns from every label as it comes."""
