-- Whether a benchmark's ($1) free answers tell no more than a grade: on two documents or more a model ($2) is wrong, all
-- wrong answers are alike, and some are right.
WITH answered AS (
    SELECT p.doc_id, p.task, p.answer, p.answer IS NOT DISTINCT FROM d.gold AS is_right
    FROM answer_passes AS p JOIN docs AS d USING (benchmark, task, doc_id)
    WHERE p.benchmark = $1 AND list_contains($2, p.model)
)
SELECT
    count(DISTINCT (a.task, a.doc_id)) FILTER (NOT a.is_right) > 1
    AND count(DISTINCT a.answer) FILTER (NOT a.is_right) < 2
    AND bool_or(a.is_right)
    AND NOT list_has_any(
        coalesce(list(DISTINCT a.answer) FILTER (NOT a.is_right AND a.answer IS NOT NULL), []),
        coalesce(list(DISTINCT a.answer) FILTER (a.is_right), [])
    ) AS is_only_graded
FROM answered AS a;
