/** A copy of a dead record for others: original key and value, its headers and ours. */
export interface DeadLetter {
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: readonly (readonly [name: string, value: Buffer | null])[];
}

/** Port: sends to the dead-letter topic, partitioned by the key. */
export interface DeadLetterPublisher {
  /** Resolves once the copy is acknowledged, or when no broker would take one of that size. Rejects when it is not known to be stored. */
  publish(letter: DeadLetter): Promise<'sent' | 'too-large'>;
}
