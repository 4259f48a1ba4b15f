// Whether an app that requires the package and one that imports it meet the same classes.
void (async () => {
  for (const name of ['nestjs-kafka-idempotency', 'nestjs-kafka-idempotency/schema']) {
    const [required, imported] = [require(name), await import(name)];
    for (const key of Object.keys(required))
      if (required[key] !== imported[key]) throw new Error(`${key} of ${name} is another one when it is imported.`);
    console.log(`${name}: ${Object.keys(required).length > 0 ? 'one' : 'empty'}`);
  }
})();
