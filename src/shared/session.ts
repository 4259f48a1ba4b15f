/** Of a session without an answered heartbeat, the part after which nothing begins any more: the group may give the partitions away. */
export const STALE_SESSION = 0.8;
