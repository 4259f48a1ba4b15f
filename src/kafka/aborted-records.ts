import type { FetchedPartition } from './fetched-partitions.js';

/** The key of a control record that ends an aborted transaction: version 0, type 0. */
const ABORT = Buffer.from([0, 0, 0, 0]);

/**
 * Hides the records of aborted transactions, as control records are hidden: they keep their places. kafkajs's own way shows some of them when several producers write to a partition:
 * it takes the transactions in the order in which they ended, as brokers list them, and at each record no more than one of them.
 */
export function hideAborted(fetched: FetchedPartition): void {
  const transactions = fetched.abortedTransactions.map(({ producerId, firstOffset }) => ({
    producerId,
    first: BigInt(firstOffset),
  }));
  if (transactions.length === 0) return;
  fetched.abortedTransactions = []; // or kafkajs would take a record with the key of such a mark for one
  transactions.sort((one, other) => (one.first < other.first ? -1 : 1));
  const aborted = new Set<string>();
  for (const message of fetched.messages) {
    while (transactions.length > 0 && transactions[0]!.first <= BigInt(message.offset))
      aborted.add(transactions.shift()!.producerId);
    const { batchContext } = message;
    if (batchContext?.inTransaction !== true || !aborted.has(batchContext.producerId)) continue;
    if (!message.isControlRecord) message.isControlRecord = true;
    else if (message.key !== null && ABORT.equals(message.key)) aborted.delete(batchContext.producerId);
  }
}
