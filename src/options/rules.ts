import { getMetadataStorage, ValidateBy, ValidateNested, type ValidationArguments } from 'class-validator';
import { type Duration, durationMs } from '../shared/duration.js';

/** A class whose decorated properties are the known options of one object. */
export type Shape = new () => object;

/**
 * What an option accepts. One rule per option, so that one fault gives one message. `remedy` says what to give instead. class-validator
 * replaces tokens such as `$value` in it, so it quotes nothing of the user's but through `show`.
 */
export interface Rule {
  readonly accepts: (value: unknown) => boolean;
  readonly remedy: string | ((value: unknown) => string);
  readonly required?: boolean;
}

const GROUP = 'optionGroup';

export function Option(rule: Rule): PropertyDecorator {
  return validateBy('option', [], rule);
}

/** An option that is itself an object of options. */
export function Group(shape: Shape, rule: Omit<Rule, 'accepts'>): PropertyDecorator {
  const isGroup = validateBy(GROUP, [shape], { ...rule, accepts: isOptionsObject });
  const nested = ValidateNested();
  return (target, property) => {
    isGroup(target, property);
    nested(target, property);
  };
}

function validateBy(name: string, constraints: unknown[], rule: Rule): PropertyDecorator {
  const { remedy } = rule;
  return ValidateBy({
    name,
    constraints,
    validator: {
      validate: (value: unknown) => (value === undefined ? rule.required !== true : rule.accepts(value)),
      defaultMessage: (args?: ValidationArguments) => (typeof remedy === 'string' ? remedy : remedy(args?.value)),
    },
  });
}

/** An object a user writes options in: a literal, an instance of a class, one without prototype. Not an array, a Map, a Promise, a Buffer. */
export function isOptionsObject(value: unknown): value is object {
  return typeof value === 'object' && Object.prototype.toString.call(value) === '[object Object]';
}

/** The names of the options a shape knows, and for groups the shape inside. The decorators are the only list. */
export function optionsOf(shape: Shape): ReadonlyMap<string, Shape | undefined> {
  const options = new Map<string, Shape | undefined>();
  for (const { propertyName, name, constraints } of getMetadataStorage().getTargetValidationMetadatas(
    shape,
    '',
    false,
    false,
  )) {
    const inner = name === GROUP ? (constraints[0] as Shape) : options.get(propertyName);
    options.set(propertyName, inner);
  }
  return options;
}

export function duration(least: Duration, most: Duration, example: Duration): Rule {
  const [leastMs, mostMs] = [durationMs(least) ?? 0, durationMs(most) ?? 0];
  return {
    accepts: (value) => {
      const ms = durationMs(value);
      return ms !== undefined && ms >= leastMs && ms <= mostMs;
    },
    remedy: `Give a duration from ${String(least)} to ${String(most)}: milliseconds, or a text such as '${String(example)}'.`,
  };
}

export function whole(least: number, also?: number): Rule {
  return {
    accepts: (value) =>
      (Number.isSafeInteger(value) && (value as number) >= least) || (also !== undefined && value === also),
    remedy: `Give a whole number from ${String(least)}${also === undefined ? '' : `, or ${String(also)}`}.`,
  };
}

export function wholeUpTo(least: number, most: number): Rule {
  return {
    accepts: (value) => Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most,
    remedy: `Give a whole number from ${String(least)} to ${String(most)}.`,
  };
}

/** kafkajs takes milliseconds as a number only: `'30s'` would reach it as NaN. */
export function milliseconds(least: number): Rule {
  return { ...whole(least), remedy: `kafkajs takes milliseconds: give a whole number from ${String(least)}.` };
}

export function amount(least: number): Rule {
  return {
    accepts: (value) => typeof value === 'number' && Number.isFinite(value) && value >= least,
    remedy: `Give a number from ${String(least)}.`,
  };
}

export function oneOf(...values: readonly string[]): Rule {
  return {
    accepts: (value) => typeof value === 'string' && values.includes(value),
    remedy: `Give one of ${values.map((value) => `'${value}'`).join(', ')}.`,
  };
}

export const flag: Rule = { accepts: (value) => typeof value === 'boolean', remedy: 'Give true or false.' };

export function callback(remedy: string): Rule {
  return { accepts: (value) => typeof value === 'function', remedy };
}

/** A text that is not blank and has no control characters. */
export function text(remedy: string): Rule {
  return { accepts: isText, remedy };
}

export function isText(value: unknown): value is string {
  return typeof value === 'string' && value.trim() !== '' && !/\p{Cc}/u.test(value);
}
