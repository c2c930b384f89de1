/*
 * command.h
 *		submit_sql(): a command that the server runs after the commit.
 */
#ifndef SSW_COMMAND_H
#define SSW_COMMAND_H

extern void ssw_command_check_role(void);

#endif							/* SSW_COMMAND_H */
