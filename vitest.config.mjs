import { defineConfig } from 'vitest/config';

// The tests run what tsc compiled: the same JavaScript that is shipped, with real decorator metadata.
// Three projects, one after the other: `unit` needs no services; `services` shares one Kafka and PostgreSQL; `package` installs apps with npm,
// which leaves no processor time for tests that watch sessions and timeouts.
const projects = [
  { name: 'unit', include: ['build/test/unit/**/*.spec.js'] },
  {
    name: 'services',
    include: ['build/test/integration/**/*.spec.js', 'build/test/e2e/**/*.spec.js'],
    globalSetup: ['build/test/services/global-setup.js'],
  },
  {
    name: 'package',
    include: ['build/test/package/**/*.spec.js'],
    globalSetup: ['build/test/services/global-setup.js'],
    fileParallelism: false,
  },
];

export default defineConfig({
  test: {
    testTimeout: 60_000,
    hookTimeout: 120_000,
    pool: 'forks',
    maxWorkers: 2,
    reporters: ['default', './etc/plain-counts.mjs'],
    projects: projects.map((project, groupOrder) => ({
      extends: true,
      test: { ...project, sequence: { groupOrder } },
    })),
  },
});
