/** Marks a table as ours and says which shape it has; the last statement of a migration, so that one broken off is seen. */
export const SCHEMA_COMMENT = 'nestjs-kafka-idempotency schema 1';
