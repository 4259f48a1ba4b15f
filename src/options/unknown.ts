import type { Fault } from './fault.js';
import { optionsOf, type Shape } from './rules.js';
import { IdempotentBatchShape, IdempotentShape, ModuleShape } from './shapes.js';

const LATER = 'is not an option of this version: it comes with a later one';
const LEAVE_OUT = 'Leave it out.';
const REBUILT = 'is not an option: a crashed consumer is always rebuilt here, with a growing wait';
const FIXED_PRODUCER =
  'is not an option: what is sent here is idempotent, acknowledged by all replicas, one request at a time';
const NO_TOPIC_MADE = 'is not an option: a misspelt topic would be made and never filled';
const NO_CODEC = 'is not an option: values reach the handler as raw bytes or as `decode` says';

/** Names that are known and refused, each with its own way out. The paths are those of both `forRoot` and `@Idempotent()`. */
const REFUSED: Readonly<Record<string, readonly [problem: string, remedy: string]>> = {
  reusedId: [LATER, LEAVE_OUT],
  retention: [LATER, LEAVE_OUT],
  version: [LATER, LEAVE_OUT],
  dedupe: [LATER, LEAVE_OUT],
  replay: [LATER, LEAVE_OUT],
  'kafka.producer.acks': [FIXED_PRODUCER, LEAVE_OUT],
  'kafka.producer.idempotent': [FIXED_PRODUCER, LEAVE_OUT],
  'kafka.producer.maxInFlightRequests': [FIXED_PRODUCER, LEAVE_OUT],
  'kafka.producer.transactionalId': [FIXED_PRODUCER, LEAVE_OUT],
  'kafka.producer.allowAutoTopicCreation': [NO_TOPIC_MADE, 'Leave it out and make the topics first.'],
  'kafka.codecs.gzip': ['is not an option: gzip is built in, within limits.batchBytes', LEAVE_OUT],
  'redelivery.attempts': [
    'is not an option: a parked event has one attempt each round',
    'Set redelivery.rounds; retry.attempts is for tries in place.',
  ],
  'redelivery.jitter': ['is not an option: parked events come back one by one, not in step', LEAVE_OUT],
  'kafka.run': [
    'is not an option: how records are fetched and committed is what this package decides',
    'Leave it out; bound the work with concurrency.transactions and buffer, and set commitInterval for offsets.',
  ],
  'kafka.send': ['is not an option: replies are sent with acks of all replicas', LEAVE_OUT],
  'kafka.subscribe.topics': [
    'is not an option: the topics are the patterns of the handlers',
    'Write them in @EventPattern() or @MessagePattern().',
  ],
  'kafka.subscribe.topic': [
    'is not an option: the topics are the patterns of the handlers',
    'Write them in @EventPattern() or @MessagePattern().',
  ],
  'kafka.deserializer': [NO_CODEC, "Use decode: 'json', 'text', 'bytes' or a function of the record."],
  'kafka.parser': [NO_CODEC, "Use decode: 'bytes' instead of keepBinary, or a function of the record."],
  'kafka.serializer': [
    'is not an option: a reply is sent as the handler returns it',
    'Encode the value in the handler.',
  ],
  'kafka.producerOnlyMode': [
    'is not an option: this transport is a consumer',
    "Use Nest's ClientKafka where an application only sends.",
  ],
  'kafka.consumer.allowAutoTopicCreation': [
    NO_TOPIC_MADE,
    'Leave it out and make the topics first; missing ones are waited for and named.',
  ],
  'kafka.consumer.retry.restartOnFailure': [REBUILT, LEAVE_OUT],
  'kafka.client.retry.restartOnFailure': [REBUILT, LEAVE_OUT],
  key: ["is not an option: a key is the record's key", 'Say where the event id comes from with id.'],
};

/** What to say of a name the shape does not know. The value is not shown: nobody knows what it is, and it may be a password. */
export function unknownOption(parent: string, name: string, shape: Shape): Fault {
  const path = join(parent, name);
  const refused = REFUSED[path];
  if (refused !== undefined) return { path, problem: refused[0], remedy: refused[1] };
  const known = [...optionsOf(shape).keys()];
  const meant = nearest(name, known);
  const problem = 'is not an option';
  if (meant !== undefined) return { path, problem, remedy: `Did you mean ${join(parent, meant)}?` };
  const elsewhere = placesOf(name);
  if (elsewhere.length > 0) return { path, problem, remedy: `Did you mean ${elsewhere.join(' or ')}?` };
  return { path, problem, remedy: `Known here: ${known.join(', ')}.` };
}

export function join(parent: string, name: string): string {
  return parent === '' ? name : `${parent}.${name}`;
}

function nearest(name: string, known: readonly string[]): string | undefined {
  const far = Math.max(1, Math.floor(name.length / 3));
  const [best] = known
    .map((candidate) => ({ candidate, distance: distanceOf(name.toLowerCase(), candidate.toLowerCase()) }))
    .filter(({ distance }) => distance <= far)
    .toSorted((a, b) => a.distance - b.distance);
  return best?.candidate;
}

/** Levenshtein distance, one row of its table at a time. */
function distanceOf(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (const [above, letter] of Array.from(from).entries()) {
    const next = [above + 1];
    for (const [left, other] of Array.from(to).entries()) {
      const replaced = (row[left] ?? 0) + (letter === other ? 0 : 1);
      next.push(Math.min(replaced, (next[left] ?? 0) + 1, (row[left + 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}

/** Where an option of exactly this name does stand. kafkajs's own retry is left out: its `factor` and `retries` are seldom meant. */
function placesOf(name: string): string[] {
  const inModule = pathsOf(ModuleShape).filter(
    (path) => path.split('.').at(-1) === name && path.split('.').length <= 3,
  );
  const inDecorator = [...optionsOf(IdempotentShape).keys()].filter(
    (option) => option === name && !inModule.includes(option),
  );
  const inBatch = ownOptionsOf(IdempotentBatchShape, IdempotentShape).filter((option) => option === name);
  return [
    ...inModule.map((path) => `${path} of forRoot`),
    ...inDecorator.map((path) => `${path} of @Idempotent()`),
    ...inBatch.map((path) => `${path} of @IdempotentBatch()`),
  ];
}

function ownOptionsOf(shape: Shape, parent: Shape): string[] {
  const inherited = optionsOf(parent);
  return [...optionsOf(shape).keys()].filter((option) => !inherited.has(option));
}

function pathsOf(shape: Shape, parent = ''): string[] {
  return [...optionsOf(shape)].flatMap(([name, inner]) => {
    const path = join(parent, name);
    return inner === undefined ? [path] : [path, ...pathsOf(inner, path)];
  });
}
