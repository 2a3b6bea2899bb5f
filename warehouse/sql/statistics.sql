-- Statistics of a pair of models from its four counts; a zero denominator is NULL.
CREATE OR REPLACE MACRO q_statistic(n11, n00, n10, n01) AS
    (n11::DOUBLE * n00 - n01::DOUBLE * n10) / nullif(n11::DOUBLE * n00 + n01::DOUBLE * n10, 0);

CREATE OR REPLACE MACRO correlation(n11, n00, n10, n01) AS
    (n11::DOUBLE * n00 - n01::DOUBLE * n10)
    / nullif(sqrt((n11 + n10)::DOUBLE * (n01 + n00) * (n11 + n01) * (n10 + n00)), 0);

-- The paper's pairwise kappa: Cohen's, with each model's own margins in the denominator.
CREATE OR REPLACE MACRO pairwise_kappa(n11, n00, n10, n01) AS
    2 * (n11::DOUBLE * n00 - n01::DOUBLE * n10)
    / nullif((n11 + n10)::DOUBLE * (n01 + n00) + (n11 + n01)::DOUBLE * (n10 + n00), 0);

CREATE OR REPLACE MACRO cohens_kappa(n11, n00, n10, n01) AS
    2 * (n11::DOUBLE * n00 - n01::DOUBLE * n10)
    / nullif((n11 + n10)::DOUBLE * (n10 + n00) + (n11 + n01)::DOUBLE * (n01 + n00), 0);

-- Entropy of a coin, in bits.
CREATE OR REPLACE MACRO binary_entropy(share) AS
    CASE WHEN share IN (0, 1) THEN 0.0 ELSE -(share * log2(share) + (1 - share) * log2(1 - share)) END;

-- Fleiss' kappa of n documents and `size` raters: `agreement` sums the squares of a document's votes per category,
-- `squares` those of all votes per category.
CREATE OR REPLACE MACRO fleiss_kappa(n, size, agreement, squares) AS
    ((agreement - n * size) / nullif((n * size)::DOUBLE * (size - 1), 0) - squares / nullif((n * size)::DOUBLE ** 2, 0))
    / nullif(1 - squares / nullif((n * size)::DOUBLE ** 2, 0), 0);

-- A pool's statistics that are means over its pairs, each over the pairs that define it.
CREATE OR REPLACE MACRO pair_means(n11, n00, n10, n01) AS {
    q_statistic: avg(warehouse.q_statistic(n11, n00, n10, n01)),
    correlation: avg(warehouse.correlation(n11, n00, n10, n01)),
    disagreement: avg((n10 + n01) / nullif(n11 + n00 + n10 + n01, 0)),
    kappa: avg(warehouse.pairwise_kappa(n11, n00, n10, n01)),
    double_fault: avg(n00 / nullif(n11 + n00 + n10 + n01, 0))
};

-- Every statistic of a pool of `size` models on n documents, from sums over documents (as in `pool_documents`), its
-- focal diversity, and its `pair_means`. Their Python twins: rlfocal/statistics/metrics.py.
CREATE OR REPLACE MACRO pool_statistics(n, size, failures, joint_failures, agreement, squares, n_right, focal, pairs) AS {
    focal_diversity: focal,
    generalized_diversity: 1 - joint_failures / nullif((size - 1) * failures, 0),
    fleiss_kappa: warehouse.fleiss_kappa(n, size, agreement, squares),
    q_statistic: pairs.q_statistic,
    correlation: pairs.correlation,
    disagreement: pairs.disagreement,
    kappa: pairs.kappa,
    double_fault: pairs.double_fault,
    binary_entropy: warehouse.binary_entropy(1 - failures / nullif(n * size, 0)),
    plurality_accuracy: n_right / nullif(n, 0)
};

-- McNemar's exact test, two-sided: how likely two equally good models differ so much on the documents that only one of
-- them gets right.
CREATE OR REPLACE MACRO mcnemar_p(n10, n01) AS
    least(1, 2 * list_sum(list_transform(
        range(least(n10, n01) + 1),
        lambda i: exp(lgamma(n10 + n01 + 1) - lgamma(i + 1) - lgamma(n10 + n01 - i + 1) - (n10 + n01) * ln(2))
    )));

-- Wilson's interval of a share, at 95 % unless another quantile of the normal distribution is given.
CREATE OR REPLACE MACRO wilson(n_right, n, z := 1.959963984540054) AS {
    low: (n_right + z ** 2 / 2 - z * sqrt(n_right::DOUBLE * (n - n_right) / nullif(n, 0) + z ** 2 / 4)) / (n + z ** 2),
    high: (n_right + z ** 2 / 2 + z * sqrt(n_right::DOUBLE * (n - n_right) / nullif(n, 0) + z ** 2 / 4)) / (n + z ** 2)
};

-- The p at which at most k of n are successes with probability `level`, by bisection to the last bit.
CREATE OR REPLACE MACRO binomial_root(k, n, level) AS
    list_reduce(
        list_transform(range(2, 54), lambda i: 2.0::DOUBLE ** -i),
        lambda p, step: p + step * CASE WHEN list_sum(list_transform(
            range(k::BIGINT + 1), lambda j: exp(lgamma(n + 1) - lgamma(j + 1) - lgamma(n - j + 1) + j * ln(p) + (n - j) * ln(1 - p))
        )) > level THEN 1 ELSE -1 END,
        0.5::DOUBLE
    );

-- Clopper and Pearson's exact interval of a share, at 95 % unless another probability of either tail is given.
CREATE OR REPLACE MACRO clopper_pearson(n_right, n, tail := 0.025) AS {
    low: CASE WHEN n_right > 0 THEN warehouse.binomial_root(n_right - 1, n, 1 - tail) WHEN n > 0 THEN 0.0 END,
    high: CASE WHEN n_right < n THEN warehouse.binomial_root(n_right, n, tail) WHEN n > 0 THEN 1.0 END
};
