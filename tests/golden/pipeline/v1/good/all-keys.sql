WITH both AS (
  SELECT * FROM users
  UNION ALL SELECT * FROM users_then
  UNION ALL SELECT * FROM users_stable
  UNION ALL SELECT * FROM users_named
)
SELECT user_id, strict, sum(price) AS total, max(day) AS last_day
FROM paid
WHERE user_id IN (SELECT id FROM both)
GROUP BY user_id, strict
