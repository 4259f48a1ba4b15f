import kafkajs, { type Admin } from 'kafkajs';
import { until } from 'nestjs-kafka-idempotency/testing';

/** What a broker grants at least when it does not say: Kafka's default. */
const USUAL_LEAST_SESSION_MS = 6_000;

/** The shortest session the brokers grant. */
export async function leastSessionMs(admin: Admin): Promise<number> {
  const { brokers } = await admin.describeCluster();
  const broker = String(brokers[0]?.nodeId);
  const setting = 'group.min.session.timeout.ms';
  const answer = await admin
    .describeConfigs({
      includeSynonyms: false,
      resources: [{ type: kafkajs.ConfigResourceTypes.BROKER, name: broker, configNames: [setting] }],
    })
    .catch(() => undefined); // a broker may refuse to tell; then it has the usual one
  const found = answer?.resources[0]?.configEntries.find(({ configName }) => configName === setting)?.configValue;
  return Number(found ?? USUAL_LEAST_SESSION_MS);
}

/** Records of the topic that the group has not committed yet. */
export async function recordsBehind(admin: Admin, { group, topic }: { group: string; topic: string }): Promise<number> {
  const [ends, [committed]] = await Promise.all([
    admin.fetchTopicOffsets(topic),
    admin.fetchOffsets({ groupId: group, topics: [topic] }),
  ]);
  const offsets = new Map(committed?.partitions.map(({ partition, offset }) => [partition, Number(offset)]));
  return ends.reduce((sum, { partition, high }) => sum + Number(high) - Math.max(0, offsets.get(partition) ?? 0), 0);
}

/** Deletes those that are there. Nobody may be using them any more. */
export async function drop(admin: Admin, { topics, groups }: { topics: string[]; groups: string[] }): Promise<void> {
  const known = await admin.listTopics();
  const there = topics.filter((topic) => known.includes(topic));
  if (there.length > 0) await admin.deleteTopics({ topics: there });
  // A group can go when its members are gone; those that were killed are once their session has ended.
  const dropGroups = async () => {
    const { groups: all } = await admin.listGroups();
    const left = groups.filter((group) => all.some(({ groupId }) => groupId === group));
    if (left.length > 0) await admin.deleteGroups(left);
    return true;
  };
  await until(dropGroups, {
    what: `${groups.join(' and ')} to be deleted`,
    timeoutMs: 20_000,
    intervalMs: 250,
  });
}
