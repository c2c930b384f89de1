/*
 * guc.h
 *		The settings session_sweeper.*.
 */
#ifndef SSW_GUC_H
#define SSW_GUC_H

extern bool ssw_enabled;
extern int	ssw_max_workers;
extern int	ssw_max_coordinators;
extern int	ssw_worker_idle_timeout;	/* ms */
extern int	ssw_shutdown_timeout;	/* ms */
extern int	ssw_min_interval;	/* ms */
extern int	ssw_max_gap;		/* s */
extern int	ssw_fuse_hold;		/* s */
extern int	ssw_cleanup_event_retention;	/* min; 0 keeps all */
extern int	ssw_pass_retention; /* min */
extern int	ssw_heartbeat_memory;	/* kB; -1: by shared_buffers */
extern double ssw_refresh_ahead;	/* of a time to live */
extern int	ssw_usage_event_retention;	/* min */
extern int	ssw_event_interval; /* ms */
extern bool ssw_allow_attach;
extern int	ssw_max_task_workers;
extern int	ssw_max_queued_tasks;
extern int	ssw_max_appended_rows;
extern int	ssw_task_timeout;
extern int	ssw_cancel_grace;	/* ms */
extern int	ssw_task_retention; /* min */
extern char *ssw_machine_id;
extern int	ssw_max_wal_rate;	/* kB/s; 0: no limit */
extern int	ssw_max_replica_lag;	/* ms; 0: no limit */
extern int	ssw_max_policies;
extern int	ssw_max_hard_time_limit;	/* ms */

extern bool ssw_guc_database_wanted(const char *name);
extern void ssw_guc_require_service(const char *what);
extern void ssw_guc_init(void);

#endif							/* SSW_GUC_H */
