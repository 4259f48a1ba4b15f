import { defineConfig } from 'vitest/config';

// The tests run what tsc compiled: the same JavaScript that is shipped, with real decorator metadata.
export default defineConfig({
  test: {
    include: ['build/test/**/*.spec.js'],
    globalSetup: ['build/test/services/global-setup.js'],
    testTimeout: 60_000,
    hookTimeout: 120_000,
    pool: 'forks',
    maxWorkers: 2,
  },
});
