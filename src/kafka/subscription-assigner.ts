import { Logger } from '@nestjs/common';
import { AssignerProtocol, type Assigner, type Cluster, type GroupMember, type PartitionAssigner } from 'kafkajs';
import { assignPartitions, type Member } from './assign-partitions.js';
import { byTopic, type TopicPartition } from './positions.js';

export const ASSIGNER_NAME = 'nestjs-kafka-idempotency';

const VERSION = 1;
const UNKNOWN_TOPIC = ['UNKNOWN_TOPIC_OR_PARTITION', 'INVALID_TOPIC_EXCEPTION'];

/**
 * An assigner that looks at what each member reads. kafkajs's round robin knows only the leader's topics: while a deploy that adds a topic is under way
 * and an old member leads, nobody would read the new one, and partitions would go to members that do not read them.
 */
export function subscriptionAssigner(owned: () => readonly TopicPartition[]): PartitionAssigner {
  return ({ cluster }): Assigner => ({
    name: ASSIGNER_NAME,
    version: VERSION,
    protocol({ topics }) {
      const userData = Buffer.from(JSON.stringify(byTopic(owned(), ({ partition }) => partition)));
      return {
        name: ASSIGNER_NAME,
        metadata: AssignerProtocol.MemberMetadata.encode({ version: VERSION, topics, userData }),
      };
    },
    async assign({ members, topics }) {
      const all = members.map(memberOf);
      const assigned = assignPartitions(all, await partitionsOf(cluster, all, topics));
      return [...assigned].map(([memberId, places]) => ({
        memberId,
        memberAssignment: AssignerProtocol.MemberAssignment.encode({
          version: VERSION,
          assignment: Object.fromEntries(
            byTopic(places, ({ partition }) => partition).map(({ topic, partitions }) => [topic, partitions]),
          ),
          userData: Buffer.alloc(0),
        }),
      }));
    },
  });
}

function memberOf({ memberId, memberMetadata }: GroupMember): Member {
  const { topics, userData } = AssignerProtocol.MemberMetadata.decode(memberMetadata) ?? { topics: [] };
  return { memberId, topics, owned: ownedOf(userData) };
}

/** Only a wish: what cannot be read is none. */
function ownedOf(userData: Buffer | undefined): TopicPartition[] {
  try {
    const groups = JSON.parse(String(userData)) as { topic: string; partitions: number[] }[];
    return groups.flatMap(({ topic, partitions }) => partitions.map((partition) => ({ topic, partition })));
  } catch {
    return [];
  }
}

async function partitionsOf(
  cluster: Cluster,
  members: readonly Member[],
  own: readonly string[],
): Promise<Map<string, number[]>> {
  const others = new Set(members.flatMap(({ topics }) => topics).filter((topic) => !own.includes(topic)));
  const found = new Map<string, number[]>();
  for (const topic of own) {
    found.set(
      topic,
      cluster.findTopicPartitionMetadata(topic).map(({ partitionId }) => partitionId),
    );
  }
  if (others.size === 0) return found;
  try {
    for (const topic of others) found.set(topic, await foreignPartitions(cluster, topic));
  } finally {
    await cluster.refreshMetadata(); // asking for another topic made it forget its own
  }
  return found;
}

/** None if the topic is gone, which must not keep this member, who does not read it, from leading. Whatever else fails, fails the join, which is tried again. */
async function foreignPartitions(cluster: Cluster, topic: string): Promise<number[]> {
  try {
    // Its types leave the parameter out, and that it answers null when every broker failed.
    const metadata = (await (cluster.metadata as (about: { topics: string[] }) => ReturnType<Cluster['metadata']>).call(
      cluster,
      { topics: [topic] },
    )) as Awaited<ReturnType<Cluster['metadata']>> | null;
    if (metadata === null) throw new Error(`no broker tells the partitions of ${topic}`);
    return metadata.topicMetadata.flatMap(({ partitionMetadata }) =>
      partitionMetadata.map(({ partitionId }) => partitionId),
    );
  } catch (error) {
    if (!UNKNOWN_TOPIC.includes((error as { type?: string }).type ?? '')) throw error;
    new Logger('IdempotentKafkaServer').warn(`A member of the group reads ${topic}, which does not exist`);
    return [];
  }
}
