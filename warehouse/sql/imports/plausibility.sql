-- Of each model on each benchmark of an import: its documents, how many it gets right, and what would make that implausible.
WITH given AS (
    SELECT
        s.benchmark, s.model, d.label, s.choice_logprobs AS scores, len(s.choice_logprobs) AS n_choices,
        list_max(s.choice_logprobs) AS highest, list_min(s.choice_logprobs) AS lowest,
        coalesce(coalesce(u.canonical, c.canonical) = d.gold, false) AS is_gold, s.answer, o.grade
    FROM scores AS s
    JOIN documents AS d USING (benchmark, task, doc_id)
    LEFT JOIN grades AS o ON o.row = s.row
    LEFT JOIN canonical AS c ON c.answer = s.answer
    LEFT JOIN other_units AS u ON u.given = d.given AND u.answer = s.answer
),
read AS (
    SELECT g.*, list_position(g.scores, g.highest) - 1 AS said, list_position(g.scores, g.lowest) - 1 AS said_least FROM given AS g
)
SELECT
    r.benchmark, r.model, count(*) AS n, count(r.label) > 0 AS has_choices,
    count(*) FILTER (CASE WHEN r.label IS NULL THEN r.is_gold ELSE r.said = r.label END) AS n_right,
    avg(1 / r.n_choices) AS guessing,
    count(*) FILTER (r.highest = r.lowest) AS n_flat,
    count(*) FILTER (len(list_filter(r.scores, lambda x: x = r.highest)) > 1) AS n_tied,
    count(DISTINCT r.scores) AS n_different,
    count(DISTINCT list_sort(r.scores)) - count(DISTINCT r.n_choices) AS n_unlike,
    avg(list_sum(list_transform(r.scores, lambda x: exp(least(x, 700))))) AS mass,
    count(*) FILTER (r.said_least = r.label) AS n_least,
    count(*) FILTER (r.said = r.label - 1) AS n_before,
    count(*) FILTER (r.said = r.label + 1) AS n_behind,
    count(r.grade) AS n_graded,
    count(*) FILTER (r.grade <> CASE WHEN r.label IS NULL THEN r.is_gold ELSE r.said = r.label END) AS n_otherwise
FROM read AS r
GROUP BY ALL
ORDER BY ALL;
