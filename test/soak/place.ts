/** Where the workers work. */
export interface Place {
  readonly brokers: readonly string[];
  readonly databaseUrl: string;
  readonly group: string;
  readonly sessionMs: number;
}
