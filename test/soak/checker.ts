import type { Facts, LoggedRecord, Output } from './facts.js';

export const INVARIANTS = ['I1', 'I2', 'I3', 'I4', 'I5', 'I6', 'I7'] as const;
export type Invariant = (typeof INVARIANTS)[number];

export interface Verdict {
  readonly invariant: Invariant;
  readonly verdict: 'held' | 'broken' | 'not tried';
  /** What was looked at, or what broke it. */
  readonly detail: string;
}

const EXAMPLES = 5;

/** Judges what a run has left behind. Pure: a run can be judged again from its facts. */
export function verdicts(facts: Facts): Verdict[] {
  const run = new Run(facts);
  return [
    judge('I1', `${run.inLog.size} events, each exactly once`, effectsOnce(run)),
    judge('I2', `${facts.processed.length} rows of processed_events, one for each effect`, rowsLikeEffects(run)),
    judge('I3', `${facts.committed.length} partitions, none past an unfinished record`, offsetsBehind(run)),
    judge('I4', `${run.orders.size} keys in order`, keysInOrder(run)),
    facts.outputs === undefined
      ? { invariant: 'I5', verdict: 'not tried', detail: 'nothing was published' }
      : judge('I5', sentOf(facts, facts.outputs), [...effectsSent(run, facts.outputs), ...inputsSent(facts)]),
    judge('I6', worstRecoveries(facts), recoveriesInTime(facts)),
    judge('I7', `${facts.log.length} records, each an effect, parked or a duplicate`, nothingVanished(run)),
  ];
}

function judge(invariant: Invariant, held: string, faults: readonly string[]): Verdict {
  if (faults.length === 0) return { invariant, verdict: 'held', detail: held };
  const more = faults.length > EXAMPLES ? `, and ${faults.length - EXAMPLES} more` : '';
  return { invariant, verdict: 'broken', detail: `${faults.slice(0, EXAMPLES).join('; ')}${more}` };
}

/** The facts by what is looked up in them. An event is named `consumer/id`. */
class Run {
  /** First records of the events that Kafka has. */
  readonly inLog = new Map<string, LoggedRecord>();
  readonly effects = new Map<string, number>();
  readonly processed: ReadonlySet<string>;
  readonly parked: ReadonlySet<string>;
  readonly poison: ReadonlySet<string>;
  /** Per consumer and key: its events in the order of their effects. */
  readonly orders = new Map<string, string[]>();

  constructor(readonly facts: Facts) {
    const consumerOf = new Map(facts.consumers.map(({ consumer, topic }) => [topic, consumer]));
    for (const record of facts.log) {
      const event = `${consumerOf.get(record.topic)}/${record.id}`;
      if (!this.inLog.has(event)) this.inLog.set(event, record);
    }
    for (const { consumer, id, key } of facts.effects) {
      const event = `${consumer}/${id}`;
      this.effects.set(event, (this.effects.get(event) ?? 0) + 1);
      const order = this.orders.get(`${consumer}/${key}`) ?? [];
      this.orders.set(`${consumer}/${key}`, order);
      order.push(event);
    }
    this.processed = new Set(facts.processed.map(({ consumer, id }) => `${consumer}/${id}`));
    this.parked = new Set(facts.leftParked.map(({ consumer, id }) => `${consumer}/${id}`));
    this.poison = new Set(
      facts.sends.filter(({ isPoison }) => isPoison).map(({ topic, id }) => `${consumerOf.get(topic)}/${id}`),
    );
  }

  eventOf(topic: string, id: string): string {
    const found = this.facts.consumers.find((one) => one.topic === topic);
    return `${found?.consumer}/${id}`;
  }
}

function effectsOnce(run: Run): string[] {
  const { facts, inLog, effects } = run;
  const unstored = facts.sends.filter(
    ({ topic, id, answer }) => answer === 'acknowledged' && !inLog.has(run.eventOf(topic, id)),
  );
  return [
    ...unstored.map(({ id }) => `${id} was acknowledged and is not in its topic (Kafka's own loss)`),
    ...[...inLog.keys()].filter((event) => !effects.has(event)).map((event) => `${event} has no effect`),
    ...[...effects].filter(([, times]) => times > 1).map(([event, times]) => `${event} has ${times} effects`),
    ...[...effects.keys()]
      .filter((event) => !inLog.has(event))
      .map((event) => `${event} has an effect and is in no topic`),
    ...facts.early.map((id) => `${id} had an effect before it was replayed`),
    ...poisonParkedOnce(run),
    ...balancesWrong(run),
  ];
}

function poisonParkedOnce({ facts, poison, inLog }: Run): string[] {
  if (!facts.hasParking) return [];
  const rows = new Map<string, number>();
  for (const { consumer, id } of facts.parked) rows.set(`${consumer}/${id}`, (rows.get(`${consumer}/${id}`) ?? 0) + 1);
  return [...poison]
    .filter((event) => inLog.has(event) && rows.get(event) !== 1)
    .map((event) => `${event} was parked ${rows.get(event) ?? 0} times`);
}

function balancesWrong({ facts, orders }: Run): string[] {
  return facts.balances
    .filter(({ consumer, key, amount }) => amount !== (orders.get(`${consumer}/${key}`)?.length ?? 0))
    .map(({ consumer, key, amount }) => `the balance of ${consumer}/${key} is ${amount}`);
}

function rowsLikeEffects({ processed, effects }: Run): string[] {
  return [
    ...[...effects.keys()].filter((event) => !processed.has(event)).map((event) => `${event} has an effect and no row`),
    ...[...processed].filter((event) => !effects.has(event)).map((event) => `${event} has a row and no effect`),
  ];
}

function offsetsBehind(run: Run): string[] {
  const { facts, effects, parked } = run;
  const committed = new Map(facts.committed.map(({ topic, partition, offset }) => [`${topic}/${partition}`, offset]));
  const unfinished = facts.log.filter(({ topic, partition, offset, id }) => {
    const event = run.eventOf(topic, id);
    return offset < (committed.get(`${topic}/${partition}`) ?? 0) && !effects.has(event) && !parked.has(event);
  });
  return [
    ...facts.passed.map(
      ({ topic, partition, offset, id }) => `${topic}[${partition}]@${offset} (${id}) was passed during the run`,
    ),
    ...unfinished.map(({ topic, partition, offset, id }) => `${topic}[${partition}]@${offset} (${id}) is passed`),
  ];
}

/** As the log has them: a send whose answer was lost may be stored behind a later one. Parked without holding its key, an event leaves the order. */
function keysInOrder({ inLog, orders, poison, facts }: Run): string[] {
  const outOfOrder: string[] = [];
  const leaves = (event: string): boolean => poison.has(event) && event.startsWith(`${facts.consumers[0]?.consumer}/`);
  for (const events of orders.values()) {
    let last: LoggedRecord | undefined;
    for (const event of events) {
      const record = inLog.get(event);
      if (record === undefined || leaves(event)) continue;
      if (last !== undefined && record.offset < last.offset) outOfOrder.push(`${event} came after ${last.id}`);
      last = record;
    }
  }
  return outOfOrder;
}

function sentOf({ imports }: Facts, outputs: readonly Output[]): string {
  const events = new Set(outputs.map(({ eventId }) => eventId)).size;
  const published = `${events} published events in ${outputs.length} messages`;
  return imports === undefined
    ? published
    : `${published}, ${imports.inputs.length} inputs of a job that was killed ${imports.kills} times`;
}

/** Each input under one id, however often the job began anew and the message was sent. */
function inputsSent({ imports }: Facts): string[] {
  if (imports === undefined) return [];
  const sent = [...new Map(imports.messages.map(({ eventId, input }) => [eventId, input])).values()];
  const at = imports.inputs.findIndex((input, index) => input !== sent[index]);
  if (at >= 0) return [`where ${imports.inputs[at]} was due the job sent ${sent[at] ?? 'nothing'}`];
  return sent.length > imports.inputs.length
    ? [`the job sent ${sent[imports.inputs.length]} once more under another id`]
    : [];
}

/** One published event for each effect, however often it was sent, and of each key in the order of the effects. */
function effectsSent({ facts, effects, orders }: Run, outputs: readonly Output[]): string[] {
  const firsts = new Map<string, Output>();
  for (const output of outputs) if (!firsts.has(output.eventId)) firsts.set(output.eventId, output);
  const published = new Map<string, string[]>();
  for (const { key, consumer, id } of firsts.values())
    published.set(key, [...(published.get(key) ?? []), `${consumer}/${id}`]);
  const times = new Map<string, number>();
  for (const event of [...published.values()].flat()) times.set(event, (times.get(event) ?? 0) + 1);
  return [
    ...(facts.leftInOutbox > 0 ? [`${facts.leftInOutbox} rows are left in the outbox`] : []),
    ...[...effects.keys()].filter((event) => !times.has(event)).map((event) => `of ${event} nothing was sent`),
    ...[...times].filter(([, ids]) => ids > 1).map(([event, ids]) => `of ${event} events of ${ids} ids were sent`),
    ...[...times.keys()].filter((event) => !effects.has(event)).map((event) => `${event} was sent without an effect`),
    ...[...published].flatMap(([key, events]) => misplaced(events, orders.get(key) ?? [])),
  ];
}

/** The first that does not stand where the other list, of the same events, has it. */
function misplaced(events: readonly string[], expected: readonly string[]): string[] {
  const known = new Set(events);
  const wanted = [...new Set(expected)].filter((event) => known.has(event));
  const at = events.findIndex((event, index) => event !== wanted[index]);
  return at < 0 ? [] : [`${events[at]} was sent out of order, where ${wanted[at]} was due`];
}

function worstRecoveries({ recoveries }: Facts): string {
  const worst = new Map<string, number>();
  for (const { fault, ms = Infinity } of recoveries) worst.set(fault, Math.max(ms, worst.get(fault) ?? 0));
  const slowest = [...worst].sort(([, a], [, b]) => b - a).slice(0, 3);
  return slowest.map(([fault, ms]) => `${fault} ${(ms / 1_000).toFixed(1)} s at most`).join(', ') || 'no fault';
}

function recoveriesInTime({ recoveries, lag, lost }: Facts): string[] {
  return [
    ...(lag > 0 ? [`${lag} records were left when all was well again`] : []),
    ...lost.map((how) => `a worker ended: ${how}`),
    ...recoveries
      .filter(({ ms, boundMs }) => ms === undefined || ms > boundMs)
      .map(({ fault, at, ms, boundMs }) => {
        const took = ms === undefined ? 'no recovery' : `${(ms / 1_000).toFixed(1)} s`;
        return `${fault} at ${clock(at)}: ${took}, the bound is ${(boundMs / 1_000).toFixed(1)} s`;
      }),
  ];
}

function nothingVanished({ inLog, effects, parked }: Run): string[] {
  return [...inLog]
    .filter(([event]) => !effects.has(event) && !parked.has(event))
    .map(([event]) => `${event} is nowhere`);
}

/** 65000 as 01:05. */
export function clock(ms: number): string {
  const seconds = Math.floor(ms / 1_000);
  return `${String(Math.floor(seconds / 60)).padStart(2, '0')}:${String(seconds % 60).padStart(2, '0')}`;
}
