import { randomUUID } from 'node:crypto';

export const PARTITIONS = 6;

/** One order of one customer. The customer is the record's key, and all orders of a customer go to one partition. */
export interface DemoEvent {
  readonly id: string;
  readonly customer: string;
  /** Which of the customer's orders it is: 1, 2, 3, … in the order in which they are sent. */
  readonly number: number;
  readonly partition: number;
}

export interface DemoRecord {
  readonly event: DemoEvent;
  /** The event is sent once more, under the id it had. */
  readonly isDuplicate: boolean;
}

/** Orders a customer has, about: the fewer customers, the more often a key comes. */
const PER_CUSTOMER = 20;
/** Orders of one customer that follow each other directly, where a wrong order would show first. */
const IN_A_ROW = 4;
const EVERY_TWICE = 5;

/**
 * What the demo sends, in this order. Every fifth event is sent twice: in turn right behind the first copy, where the two meet in one fetch, and a
 * tenth of the run later, when somebody else may own the partition.
 */
export function demoRecords(count: number, newId: () => string = randomUUID): DemoRecord[] {
  const records: DemoRecord[] = [];
  const later = new Map<number, DemoEvent>();
  const lag = Math.ceil(count / 10);
  demoEvents(count, newId).forEach((event, index, events) => {
    records.push({ event, isDuplicate: false });
    if (index % EVERY_TWICE === EVERY_TWICE - 1) {
      const atOnce = index % (2 * EVERY_TWICE) === EVERY_TWICE - 1;
      if (atOnce || index + lag >= events.length) records.push({ event, isDuplicate: true });
      else later.set(index + lag, event);
    }
    const due = later.get(index);
    if (due !== undefined) records.push({ event: due, isDuplicate: true });
  });
  return records;
}

function demoEvents(count: number, newId: () => string): DemoEvent[] {
  const customers = Math.max(1, Math.ceil(count / PER_CUSTOMER));
  const ordersOf = new Map<number, number>();
  return Array.from({ length: count }, (_, index) => {
    const customer = Math.floor(index / IN_A_ROW) % customers;
    const number = (ordersOf.get(customer) ?? 0) + 1;
    ordersOf.set(customer, number);
    return { id: newId(), customer: `customer-${customer + 1}`, number, partition: customer % PARTITIONS };
  });
}
