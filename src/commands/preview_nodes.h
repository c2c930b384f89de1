/*
 * preview_nodes.h
 *		What a policy of a distributed table would find, over shards and nodes.
 */
#ifndef SSW_PREVIEW_NODES_H
#define SSW_PREVIEW_NODES_H

#include "commands/preview.h"

extern SswPreview *ssw_preview_here(SswPolicy *p, Relation rel);
extern void ssw_preview_add_nodes(const SswPolicy *p, SswPreview *v);

#endif							/* SSW_PREVIEW_NODES_H */
