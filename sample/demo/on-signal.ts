/** Every time, not once: npm passes Ctrl-C on a second time, which must not interrupt the clearing up. Gives whether there was one. */
export function onSignal(act: () => void): () => boolean {
  let came = false;
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(signal, () => {
      if (!came) act();
      came = true;
    });
  }
  return () => came;
}
