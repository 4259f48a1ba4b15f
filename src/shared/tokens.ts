/** Injection tokens. Symbols of the registry, so that they never meet those of another package. */
const token = (name: string) => Symbol.for(`nestjs-kafka-idempotency:${name}`);

export const RESOLVED_OPTIONS = token('options');
export const HANDLER_PROFILES = token('handler-profiles');
export const CONSUMER_PROGRESS = token('consumer-progress');
export const EMIT_EVENT = token('emit-event');
export const NEW_KAFKA = token('new-kafka');
export const PARKING = token('parking');
export const SHARED_TRANSACTIONS = token('shared-transactions');
