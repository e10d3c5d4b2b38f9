-- What each hook does to each family of inputs, fed by the battery without any model.
CREATE OR REPLACE VIEW capabilities AS
SELECT defense, hook, family, status, changed, n, removed, kinds, deterministic, stateful, mutates, errors, error, seconds, kind
FROM battery_data;
