// Each guard of the delivery path, what it looks like when it is taken out, and the tests that have to notice.
// `find` must stand in the file exactly once.
export const MUTATIONS = [
  {
    name: 'claim',
    file: 'src/handler/idempotency.interceptor.ts',
    find: `if (transaction.claimed.length === 0) return await this.#skip(transaction, delivery);`,
    replace: `if (transaction.claimed.length < 0) return await this.#skip(transaction, delivery);`,
    without: 'a duplicate claim skips the handler',
    project: 'services',
    tests: ['build/test/e2e/crash.spec.js'],
  },
  {
    name: 'ownership check',
    file: 'src/consumer/membership.ts',
    find: `    this.#dropLanes(
      lost,
      new IdempotencyError('PARTITION_LOST', 'The group gave this partition to another member', { retryable: true }),
    );
`,
    replace: `    void lost;
`,
    without: 'lanes that are not ours any more die at the join, and their offsets are not committed',
    project: 'services',
    tests: ['build/test/e2e/rebalance.spec.js'],
  },
  {
    name: 'continuity check',
    file: 'src/consumer/membership.ts',
    find: `if (batch.fetchedOffset !== lane.ledger.next) {`,
    replace: `if (batch.fetchedOffset < 0n) {`,
    without: 'a batch counts only if it continues its lane',
    project: 'services',
    tests: ['build/test/e2e/rebalance.spec.js'],
  },
  {
    name: 'commit check',
    file: 'src/transaction/transaction-end.ts',
    find: `return { kind: command === 'COMMIT' ? 'committed' : 'rolled back' };`,
    replace: `return { kind: command === '' ? 'rolled back' : 'committed' };`,
    without: "COMMIT's command tag decides whether it was one",
    project: 'services',
    tests: ['build/test/integration/transaction/commit-and-rollback.spec.js'],
  },
  {
    name: 'unknown commit',
    file: 'src/transaction/transaction-end.ts',
    find: `return { kind: isRefusal ? 'refused' : 'unknown', error: error as Error };`,
    replace: `return { kind: isRefusal ? 'refused' : 'committed', error: error as Error };`,
    without: 'a COMMIT without an answer is an unknown outcome',
    project: 'services',
    tests: ['build/test/e2e/unknown-commit.spec.js'],
  },
  {
    name: 'offset check',
    file: 'src/consumer/offset-ledger.ts',
    find: `return this.#taken[0]?.offset ?? this.#covered;`,
    replace: `return this.#taken.find(({ settled }) => !settled)?.offset === undefined ? this.#covered : (this.#taken.at(-1)?.offset ?? this.#covered);`,
    without: 'only what is finished up to the lowest unfinished record is committed',
    project: 'unit',
    tests: ['build/test/unit/consumer/offset-ledger.spec.js'],
  },
  {
    name: 'barrier',
    file: 'src/consumer/offset-ledger.ts',
    find: `return lowest(this.committable, this.#securing, this.#unsecured);`,
    replace: `return this.committable;`,
    without: 'an offset that covers a skipped duplicate waits for a barrier',
    project: 'unit',
    tests: ['build/test/unit/consumer/offset-ledger.spec.js'],
  },
];
