/** Port: the consumer asks the inbox which of these events the consumer has handled, as committed rows say. Rejects if the database does not answer. */
export type HandledEvents = (consumer: string, eventIds: readonly string[]) => Promise<ReadonlySet<string>>;
