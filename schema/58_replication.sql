-- A publication FOR ALL TABLES includes these tables.  The subscriber discards their rows.

CREATE FUNCTION sweeper._discard_replicated() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'ssw_discard_replicated';
COMMENT ON FUNCTION sweeper._discard_replicated() IS 'Trigger: discards rows that logical replication brings. Errors: 39P01 not called as a trigger BEFORE each row.';
DO $$
DECLARE
    name name;
BEGIN
    FOR name IN SELECT c.relname FROM pg_catalog.pg_class AS c WHERE c.relnamespace = 'sweeper'::pg_catalog.regnamespace AND c.relkind = 'r' LOOP
        -- a table with a trigger cannot become a reference table
        CONTINUE WHEN name = 'shared_policy';
        -- rows of these have keys that no other server has, or are compared as a whole.  A row that is not inserted is not updated or
        -- deleted either; and they are written often
        EXECUTE format('CREATE TRIGGER discard_replicated BEFORE INSERT %s ON sweeper.%I FOR EACH ROW EXECUTE FUNCTION sweeper._discard_replicated()',
            CASE WHEN name NOT IN ('session', 'task', 'cleanup_event', 'usage_event', 'task_comment', 'policy_change', 'failed_row', 'append_row')
                 THEN 'OR UPDATE OR DELETE' END, name);
        EXECUTE format('ALTER TABLE sweeper.%I ENABLE REPLICA TRIGGER discard_replicated', name);
    END LOOP;
END
$$;
