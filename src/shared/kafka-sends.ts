/** A message on its way to Kafka, encoded. */
export interface SentMessage {
  readonly topic: string;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: Record<string, Buffer>;
  readonly partition?: number;
}

/** What the handler of one delivery publishes into its Kafka transaction. Nothing of it leaves before the handler has ended: what fails has sent nothing. */
export class KafkaSends {
  readonly #messages: SentMessage[] = [];
  #isClosed = false;

  /** The handler has ended: what it publishes now would be in no transaction. */
  get isClosed(): boolean {
    return this.#isClosed;
  }
  /** In the order of the calls. */
  get messages(): readonly SentMessage[] {
    return this.#messages;
  }

  add(message: SentMessage): void {
    this.#messages.push(message);
  }

  close(): void {
    this.#isClosed = true;
  }
}
