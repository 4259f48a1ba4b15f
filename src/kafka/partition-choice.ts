import {
  Partitioners,
  type ICustomPartitioner,
  type Message,
  type PartitionerArgs,
  type RecordMetadata,
} from 'kafkajs';

/**
 * Which partition each message goes to: its own `partition` if it has one, else the partitioner's word, Java-compatible murmur2 unless given.
 * Chosen once per message, so that sending again cannot move it, and known here, so that the broker's answer can be checked.
 */
export class PartitionChoice {
  readonly #chosen = new WeakMap<Message, number>();

  constructor(private readonly createPartitioner: ICustomPartitioner = Partitioners.DefaultPartitioner) {}

  /** For `kafka.producer()`. */
  readonly partitioner: ICustomPartitioner = () => {
    const choose = this.createPartitioner();
    return (args) => this.#choose(args, choose);
  };

  /** The messages of one topic that the answer of a send does not show as stored. */
  missing<M extends Message>(topic: string, messages: readonly M[], answer: readonly RecordMetadata[]): M[] {
    const stored = new Set(
      answer
        .filter(({ topicName, errorCode }) => topicName === topic && errorCode === 0)
        .map(({ partition }) => partition),
    );
    return messages.filter((message) => !stored.has(this.#chosen.get(message) ?? -1));
  }

  #choose(args: PartitionerArgs, choose: (args: PartitionerArgs) => number): number {
    const { message } = args;
    const partition = this.#chosen.get(message) ?? message.partition ?? choose(args);
    this.#chosen.set(message, partition);
    return partition;
  }
}
