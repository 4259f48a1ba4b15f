/** What a worker tells the demo as it goes: how many partitions it has now; an event is applied; a claim found a row, so the record was skipped. */
export type WorkerMessage =
  | { readonly kind: 'assigned'; readonly partitions: number }
  | { readonly kind: 'applied' }
  | { readonly kind: 'skipped' };

/** What a worker is started with, as JSON in its first argument. */
export interface WorkerSettings {
  readonly group: string;
  readonly schema: string;
  readonly sessionMs: number;
}
