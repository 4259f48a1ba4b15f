import { validateSync, type ValidationError } from 'class-validator';
import type {
  IdempotencyOptions,
  IdempotentBatchOptions,
  IdempotentOptions,
  KafkaExactlyOnceOptions,
} from '../idempotency.options.js';
import { batchContradictions, handlerContradictions, moduleContradictions } from './contradictions.js';
import { type Fault, optionsInvalid, show } from './fault.js';
import { readOptions } from './read.js';
import { isOptionsObject, optionsOf, type Shape } from './rules.js';
import { ExactlyOnceShape, IdempotentBatchShape, IdempotentShape, ModuleShape } from './shapes.js';
import { join, unknownOption } from './unknown.js';

/**
 * Refuses options that are wrong, missing, unknown or contradictory: all of them at once, each once, in one OPTIONS_INVALID whose lines name
 * the path, the value got and what to give instead. Nothing under `kafka.client.sasl` or `ssl` and no unknown value is ever shown. The object is only read.
 */
export function checkOptions(value: unknown): asserts value is IdempotencyOptions {
  refuse('IdempotencyModule.forRoot', faultsOf(value, ModuleShape, moduleContradictions));
}

/** The same for the options of a decorator; `where` is how the error calls it, for example `@Idempotent() of BillingEvents.charge`. */
export function checkIdempotentOptions(value: unknown, where: string): asserts value is IdempotentOptions | undefined {
  if (value === undefined) return;
  refuse(where, faultsOf(value, IdempotentShape, handlerContradictions));
}

/** And for those of `@IdempotentBatch()`. */
export function checkBatchOptions(value: unknown, where: string): asserts value is IdempotentBatchOptions | undefined {
  if (value === undefined) return;
  refuse(where, faultsOf(value, IdempotentBatchShape, batchContradictions));
}

/** And for those of `@KafkaExactlyOnce()`. */
export function checkExactlyOnceOptions(
  value: unknown,
  where: string,
): asserts value is KafkaExactlyOnceOptions | undefined {
  if (value === undefined) return;
  refuse(
    where,
    faultsOf(value, ExactlyOnceShape, () => []),
  );
}

function refuse(where: string, faults: readonly Fault[]): void {
  if (faults.length > 0) throw optionsInvalid(where, faults);
}

function faultsOf(
  value: unknown,
  shape: Shape,
  contradictions: (options: object, faulty: ReadonlySet<string>) => Fault[],
): Fault[] {
  if (!isOptionsObject(value)) {
    return [
      {
        path: 'options',
        problem: value === undefined ? 'is missing' : `is ${show('options', value)}`,
        remedy: 'Give one object of options.',
      },
    ];
  }
  const errors = validateSync(shaped(value, shape), {
    whitelist: true,
    forbidNonWhitelisted: true,
    forbidUnknownValues: true,
    stopAtFirstError: true,
    validationError: { target: false },
  });
  const faults = errors.flatMap((error) => toFaults(error, '', shape));
  return [...faults, ...contradictions(value, new Set(faults.map(({ path }) => path)))];
}

/**
 * An instance of the shape with the given options, and of the inner shapes for the groups inside, so that class-validator sees them whoever
 * made them. Everything else is taken over by reference: kafkajs's own values may be frozen or cyclic.
 */
function shaped(value: object, shape: Shape): object {
  const instance = new shape();
  const options = optionsOf(shape);
  for (const [name, given] of readOptions(value, options.keys())) {
    const inner = options.get(name);
    const option = inner !== undefined && isOptionsObject(given) ? shaped(given, inner) : given;
    Object.defineProperty(instance, name, { value: option, enumerable: true });
  }
  return instance;
}

function toFaults(error: ValidationError, parent: string, shape: Shape): Fault[] {
  const options = optionsOf(shape);
  if (!options.has(error.property)) return [unknownOption(parent, error.property, shape)];
  const path = join(parent, error.property);
  const problem = error.value === undefined ? 'is missing' : `is ${show(path, error.value)}`;
  const own = Object.values(error.constraints ?? {}).map((remedy) => ({ path, problem, remedy }));
  const inner = options.get(error.property);
  return inner === undefined
    ? own
    : [...own, ...(error.children ?? []).flatMap((child) => toFaults(child, path, inner))];
}
