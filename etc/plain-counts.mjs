// A vitest reporter: the counts once more in a line any tool reads. A file that does not load is a failure of its own.
export default class PlainCounts {
  onTestRunEnd(modules, unhandledErrors) {
    const counts = { passed: 0, failed: unhandledErrors.length, skipped: 0 };
    for (const module of modules) {
      if (module.errors().length > 0) counts.failed++;
      for (const test of module.children.allTests()) counts[countedAs(test.result().state)]++;
    }
    const skipped = counts.skipped === 0 ? '' : `, ${counts.skipped} skipped`;
    console.log(`${counts.passed} passed, ${counts.failed} failed${skipped}`);
  }
}

/** A test that never ran to its end has not passed. */
function countedAs(state) {
  return state === 'pending' ? 'failed' : state;
}
