-- Every pool of up to so many models on test documents.
SELECT list_sort(models) AS members, focal_diversity, plurality_accuracy
FROM all_pools(?, ?, split := 'test') ORDER BY len(members), members
