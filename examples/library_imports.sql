-- An edge from each module to every other module of the library that it imports.
WITH named AS (
  SELECT module, explode(imports) AS imported FROM modules
)
SELECT named.module AS source, modules.module AS target, 'IMPORTS' AS type
FROM named
JOIN modules ON modules.module = named.imported
WHERE named.module <> modules.module
