# shellcheck shell=bash disable=SC2034,SC2154
# Sourced by the subjects that set a full pass against others.  Each side gets a
# freshly filled table b, removes its dead rows, and is checked to have done it.

# The statement is given the shape it is fastest in: no window function or
# sequence for the id.
audit_tables() {
    sql <<SQL
CREATE TABLE audit_same (LIKE sweeper.cleanup_event);
CREATE INDEX ON audit_same USING brin (cleaned_at) WITH (autosummarize = on);
CREATE TABLE audit_usual (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, cleaned_at timestamptz, key text, deadline timestamptz, policy text);
CREATE INDEX ON audit_usual (cleaned_at);
CREATE INDEX ON audit_usual (policy, cleaned_at);
SELECT FROM sweeper.pause_all('bench'); -- no retention of the evidence here, once a minute
SQL
}
into_same="INSERT INTO audit_same (id, cleaned_at, deadline, pass, policy_id, count, policy, relation, key, cleanup_type)
    SELECT 1, now(), d, 1, 1, 1, 'b', 'public.b', id::text, 'expired' FROM d;"
bare="DELETE FROM b WHERE d <= now();"
same="WITH d AS (DELETE FROM b WHERE d <= now() RETURNING id, d) $into_same"
usual="WITH d AS (DELETE FROM b WHERE d <= now() RETURNING id, d)
    INSERT INTO audit_usual (cleaned_at, key, deadline, policy) SELECT now(), id::text, d, 'b' FROM d;"

# Each prints its milliseconds.
side_bare() { times <<<"$bare"; }
side_same() { times <<<"$same"; }
side_usual() { times <<<"$usual"; }
side_ours() {
    sql -c "SELECT FROM sweeper.register('b', deadline => 'd', check_every => '0', start => 'now', max_workers => 2, audit => '${1:-row}'${2:+, group_by => '$2'})"
    times <<<"CALL sweeper.sweep('b');"
    quiet -c "SELECT sweeper.unregister('b')"
}
side_none() { side_ours none; }
side_group() { side_ours row g; }

# One side once, in a table of the given order; its time goes to a file, but not
# that of run 0, in which caches and WAL files come to be.
run_side() {
    local run=$1 order=$2 side=$3 rows=${4:-$rows} audit ms left
    case $side in bare | none) audit= ;; usual) audit=audit_usual ;; ours | group) audit=sweeper.cleanup_event ;; *) audit=audit_same ;; esac
    fill "$order"
    sql -c "TRUNCATE audit_same, audit_usual, sweeper.cleanup_event"
    ms=$("side_$side")
    [ -n "$ms" ] || die "$side gave no time"
    left=$(sql -c "SELECT count(*) FROM b WHERE d <= now()")
    [ "$left" = 0 ] || die "$side left $left dead rows, run $run, $order"
    [ -z "$audit" ] || [ "$(sql -c "SELECT count(*) FROM $audit")" = $((rows / 2)) ] || die "$side did not write an event for each row"
    [ "$run" = 0 ] || echo "$ms" >>"$order.$side"
}
milliseconds() { rounded "$(median <"$1")"; }
