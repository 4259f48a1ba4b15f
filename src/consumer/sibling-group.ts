import { Logger } from '@nestjs/common';
import type { ClusterReader } from '../kafka/cluster-reader.js';

/** What Nest's own Kafka transport appends to the group id unless told otherwise. */
const NEST_POSTFIX = '-server';

interface GroupNames {
  readonly groupId: string;
  readonly postfixId: string;
}

/**
 * Whoever comes from another transport may have committed under the same name with or without a postfix. Starting beside those offsets reads the
 * whole topic again or skips it, so it is said at the start.
 */
export async function warnOfSiblingGroup(
  { groupId, postfixId }: GroupNames,
  reader: ClusterReader,
  topics: readonly string[],
): Promise<void> {
  const logger = new Logger('IdempotentKafkaServer');
  try {
    const known = await reader.existing(topics);
    const hasOffsets = async (group: string) =>
      (
        await reader.positions(
          group,
          known.map((topic) => ({ topic, partition: 0 })),
        )
      ).committed.size > 0;
    if (known.length === 0 || (await hasOffsets(groupId))) return;
    const base = groupId.slice(0, groupId.length - postfixId.length);
    for (const sibling of new Set([base, `${base}${NEST_POSTFIX}`])) {
      if (sibling === groupId || !(await hasOffsets(sibling))) continue;
      logger.warn(
        `Group ${groupId} has no offsets yet, but ${sibling} has: was this application consuming under that name? Set kafka.postfixId to '${sibling.slice(base.length)}' to go on there, else group ${groupId} begins anew`,
      );
    }
  } catch (error) {
    logger.debug(`Looking for a sibling group failed: ${(error as Error).message}`); // only a hint is lost
  }
}
