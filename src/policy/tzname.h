/*
 * tzname.h
 *		Time zones that policies name.
 */
#ifndef SSW_TZNAME_H
#define SSW_TZNAME_H

extern char *ssw_tzname(const char *name);

#endif							/* SSW_TZNAME_H */
