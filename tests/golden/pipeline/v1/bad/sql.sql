SELECT
  a
FROM ordrs
