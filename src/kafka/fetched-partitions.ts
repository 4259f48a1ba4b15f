import type { Kafka, KafkaMessage } from 'kafkajs';

/** What a broker answered for one partition, before kafkajs has looked at it. The types of kafkajs do not show it. */
export interface FetchedPartition {
  readonly partition: number;
  readonly highWatermark: string;
  /** The first offset that nobody may read yet, for its transaction is open. */
  readonly lastStableOffset: string;
  abortedTransactions: AbortedTransaction[];
  readonly messages: FetchedMessage[];
}

export interface AbortedTransaction {
  readonly producerId: string;
  readonly firstOffset: string;
}

export type FetchedMessage = Pick<KafkaMessage, 'offset' | 'key'> & {
  isControlRecord: boolean;
  /** Records of before Kafka 0.11 have none. */
  readonly batchContext?: { readonly producerId: string; readonly inTransaction: boolean };
};

interface FetchAnswer {
  readonly responses: readonly { readonly topicName: string; readonly partitions: readonly FetchedPartition[] }[];
}

interface Broker {
  fetch(request: unknown): Promise<FetchAnswer>;
}

interface Cluster {
  findBroker(query: { nodeId: string }): Promise<Broker>;
}

type Look = (topic: string, fetched: FetchedPartition) => void;

/**
 * Lets `look` see what the consumers of this client fetch, and change it, before kafkajs does. Throws if the client is not made as that of kafkajs 2.2 is: what this is used for
 * must not be left out in silence.
 */
export function lookAtFetched(kafka: Kafka, look: Look): void {
  const clusters = kafka as unknown as Record<symbol, (options: unknown) => Cluster>;
  const create = Object.getOwnPropertySymbols(kafka).find(
    ({ description }) => description === 'private:Kafka:createCluster',
  );
  const createCluster = create && clusters[create];
  if (createCluster === undefined)
    throw new Error('This kafkajs makes its connections in another way than 2.2 does. Install kafkajs 2.2.4');
  clusters[create!] = (options) => {
    const cluster = createCluster(options);
    const findBroker = cluster.findBroker.bind(cluster);
    const seen = new WeakSet<Broker>();
    cluster.findBroker = async (query) => {
      const broker = await findBroker(query);
      if (!seen.has(broker)) lookAtAnswersOf(broker, look);
      seen.add(broker);
      return broker;
    };
    return cluster;
  };
}

function lookAtAnswersOf(broker: Broker, look: Look): void {
  const fetch = broker.fetch.bind(broker);
  broker.fetch = async (request) => {
    const answer = await fetch(request);
    for (const { topicName, partitions } of answer.responses)
      for (const fetched of partitions) look(topicName, fetched);
    return answer;
  };
}
