import { Inject, Injectable, Logger } from '@nestjs/common';
import { DiscoveryService, MetadataScanner } from '@nestjs/core';
import type { ResolvedHandlerOptions, ResolvedOptions } from '../options/resolve.js';
import { resolveBatchOptions, resolveHandlerOptions } from '../options/resolve.js';
import { IdempotencyError } from '../shared/errors.js';
import type { HandlerProfile, HandlerProfiles } from '../shared/handler-profile.js';
import type { IdSource, RecordView } from '../shared/record.js';
import { RESOLVED_OPTIONS } from '../shared/tokens.js';
import { defaultIdSource, eventIdOf } from './identity/event-id.js';
import { decoratorOf, idempotentOptionsOf, memberDecoratorOf, type HandlerDecorator } from './idempotent-metadata.js';

// Nest's own keys (the same in 11 and 12), which its package root does not export.
const NEST_HANDLER_TYPE = 'microservices:handler_type';
const NEST_EXTRAS = 'microservices:pattern_extras';
const NEST_MESSAGE_HANDLER = 1;

/** A handler bound by `@Idempotent()` or `@IdempotentBatch()`, with what only its interceptor needs. */
export interface IdempotentHandler extends HandlerProfile {
  readonly id: IdSource;
}

interface Method {
  readonly className: string;
  readonly name: string;
  readonly body: object;
  readonly isRequest: boolean;
}

/**
 * All handler methods of the application under the names they deduplicate by. Nest tells a transport neither class nor method, but hands it the
 * `extras` object of the method, which is one of its own per decorated method.
 */
@Injectable()
export class HandlerCatalogue implements HandlerProfiles {
  readonly #logger = new Logger('IdempotencyModule');
  readonly #byExtras = new Map<object, HandlerProfile>();
  readonly #byMethod = new Map<object, IdempotentHandler>();
  readonly #byConsumer = new Map<string, IdempotentHandler>();
  readonly #decorated: string[] = [];

  constructor(
    @Inject(RESOLVED_OPTIONS) private readonly options: ResolvedOptions,
    @Inject(DiscoveryService) private readonly discovery: DiscoveryService,
    @Inject(MetadataScanner) private readonly scanner: MetadataScanner,
  ) {}

  /** Names of all that one of our decorators stands on. */
  get decorated(): readonly string[] {
    return this.#decorated;
  }

  get idempotent(): readonly IdempotentHandler[] {
    return [...this.#byMethod.values()];
  }

  profileOf(extras: object): HandlerProfile | undefined {
    return this.#byExtras.get(extras);
  }

  /** The `@Idempotent` handler with this method body. */
  handlerOf(method: object): IdempotentHandler | undefined {
    return this.#byMethod.get(method);
  }

  /** The `@Idempotent` handler of that consumer name. */
  called(consumer: string): IdempotentHandler | undefined {
    return this.#byConsumer.get(consumer);
  }

  /** Reads all controllers. Throws CONSUMER_NAME_MISSING, CONSUMER_NAME_TAKEN, REQUEST_NOT_REPLAYABLE or OPTIONS_INVALID. */
  build(): void {
    const takenBy = new Map<string, string>();
    const methods = this.#methods();
    for (const method of methods) {
      const profile = this.#profile(method);
      const where = `${method.className}.${method.name}`;
      const other = takenBy.get(profile.consumer);
      if (other !== undefined && !method.isRequest) throw nameTaken(profile.consumer, other, where);
      takenBy.set(profile.consumer, where);
    }
    this.#tell(methods);
  }

  #profile(method: Method): HandlerProfile {
    const where = `${method.className}.${method.name}`;
    const by = decoratorOf(method.body);
    const given = idempotentOptionsOf(method.body);
    if (by !== undefined && method.isRequest) throw notReplayable(by, where);
    if (by !== undefined && given?.consumer === undefined && this.options.consumerNames === 'explicit')
      throw nameMissing(by, where);
    const resolved: ResolvedHandlerOptions = resolveHandlerOptions(
      this.options,
      given,
      `${by ?? '@Idempotent()'} of ${where}`,
    );
    const transaction = by === undefined ? 'none' : by === '@KafkaExactlyOnce()' ? 'kafka' : 'database';
    const { maxSize, maxWaitMs } = resolveBatchOptions(given ?? {});
    const settings =
      by === undefined || by === '@Idempotent()' ? resolved : { ...resolved, messagesPerTransaction: maxSize };
    const id = transaction === 'database' ? (given?.id ?? defaultIdSource) : undefined;
    const profile: HandlerProfile = {
      consumer: given?.consumer ?? where,
      transaction,
      batch: by === '@IdempotentBatch()' ? { maxWaitMs } : undefined,
      settings,
      eventIdOf: (record: RecordView) => id && usableId(id, record),
    };
    const extras = Reflect.getMetadata(NEST_EXTRAS, method.body) as object | undefined;
    if (extras !== undefined) {
      if (this.#byExtras.has(extras))
        throw nameTaken(profile.consumer, `another controller that inherits ${method.name}`, where);
      this.#byExtras.set(extras, profile);
    }
    if (by !== undefined) this.#decorated.push(profile.consumer);
    if (id !== undefined) {
      const handler = { ...profile, id };
      this.#byMethod.set(method.body, handler);
      this.#byConsumer.set(handler.consumer, handler);
    }
    return profile;
  }

  #methods(): Method[] {
    return this.discovery.getControllers().flatMap(({ metatype }) => {
      if (typeof metatype !== 'function') return [];
      const prototype = metatype.prototype as Record<string, object>;
      return this.scanner.getAllMethodNames(prototype).flatMap((name) => {
        const body = prototype[name] as object;
        const [by, byMember] = [decoratorOf(body), memberDecoratorOf(prototype, name)];
        if (byMember !== undefined && by === undefined) throw decoratorLost(byMember, `${metatype.name}.${name}`);
        const type = Reflect.getMetadata(NEST_HANDLER_TYPE, body) as number | undefined;
        if (type === undefined && by !== undefined) throw notAnEventHandler(by, `${metatype.name}.${name}`);
        return type === undefined
          ? []
          : [{ className: metatype.name, name, body, isRequest: type === NEST_MESSAGE_HANDLER }];
      });
    });
  }

  #tell(methods: readonly Method[]): void {
    const derived = methods.filter(
      ({ body }) =>
        idempotentOptionsOf(body) !== undefined &&
        idempotentOptionsOf(body)?.consumer === undefined &&
        decoratorOf(body) !== '@KafkaExactlyOnce()',
    );
    const plain = methods.filter(({ body, isRequest }) => !isRequest && idempotentOptionsOf(body) === undefined);
    if (derived.length > 0) {
      this.#logger.log(
        `${names(derived)}: events are deduplicated under these names, so renaming a class or method makes every redelivered event new. Give @Idempotent({ consumer }) to be free of that`,
      );
    }
    if (plain.length > 0)
      this.#logger.log(
        `${names(plain)}: without @Idempotent() these run at least once, in no transaction of this package`,
      );
  }
}

/** What is wrong with an id is told when the event is delivered. */
function usableId(id: IdSource, record: RecordView): string | undefined {
  try {
    return eventIdOf(id, record);
  } catch {
    return undefined;
  }
}

function names(methods: readonly Method[]): string {
  return methods.map(({ className, name }) => `${className}.${name}`).join(', ');
}

function nameTaken(consumer: string, first: string, second: string): IdempotencyError {
  const message = `'${consumer}' is the consumer name of ${first} and of ${second}: the one that runs second would find every event already processed. Give one of them another @Idempotent({ consumer })`;
  return new IdempotencyError('CONSUMER_NAME_TAKEN', message);
}

function nameMissing(by: HandlerDecorator, where: string): IdempotencyError {
  return new IdempotencyError(
    'CONSUMER_NAME_MISSING',
    `${by} of ${where} has no consumer name, and consumerNames is 'explicit'. Give it one that outlives renames: ${by.slice(0, -2)}({ consumer: 'billing.charge' })`,
  );
}

function notReplayable(by: HandlerDecorator, where: string): IdempotencyError {
  const message = `${by} of ${where} stands on a @MessagePattern handler: a duplicate request would get no reply, for replies are not stored. Use @EventPattern, or take ${by} away`;
  return new IdempotencyError('REQUEST_NOT_REPLAYABLE', message);
}

function decoratorLost(by: HandlerDecorator, where: string): IdempotencyError {
  return new IdempotencyError(
    'OPTIONS_INVALID',
    `${by} of ${where} is lost: another decorator put a new function in the method's place, so events would be handled without it. Put ${by} above that decorator, next to @EventPattern`,
  );
}

function notAnEventHandler(by: HandlerDecorator, where: string): IdempotencyError {
  return new IdempotencyError(
    'OPTIONS_INVALID',
    `${by} of ${where} stands on a method without @EventPattern, so it would never act. Add the pattern, or take ${by} away`,
  );
}
