\echo Use "CREATE EXTENSION session_sweeper" to load this file. \quit

-- CREATE EXTENSION may reuse a schema that another role prepared; this one must be new.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_depend d
               WHERE d.refclassid = 'pg_catalog.pg_namespace'::pg_catalog.regclass
                 AND d.refobjid = (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = 'sweeper')
                 AND d.classid <> 'pg_catalog.pg_extension'::pg_catalog.regclass
                 AND d.deptype = 'n')
       OR EXISTS (SELECT FROM pg_catalog.pg_namespace n, pg_catalog.aclexplode(n.nspacl) a
                  WHERE n.nspname = 'sweeper' AND a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner
                    -- Default privileges of a schema that this command made are allowed; the last lines revoke them.
                    AND n.xmin <> pg_catalog.pg_current_xact_id()::pg_catalog.xid)
       OR (SELECT n.nspowner FROM pg_catalog.pg_namespace n WHERE n.nspname = 'sweeper')
          IS DISTINCT FROM (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolname = current_user)
    THEN
        RAISE EXCEPTION 'cannot create extension session_sweeper: schema "sweeper" already exists'
            USING ERRCODE = 'duplicate_schema',
                  HINT = 'Drop or rename schema "sweeper", then run CREATE EXTENSION again.';
    END IF;
END
$$;
