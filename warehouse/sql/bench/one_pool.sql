FROM pool_diversity('made-up', ?);
