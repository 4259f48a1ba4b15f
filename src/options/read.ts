/**
 * What an options object gives, as its author sees it: its own properties, inherited ones and getters, and methods of a class where an option
 * of that name is known. A property that is `undefined` is not given. Nothing is written to the object and nothing below it is copied.
 */
export function readOptions(value: object, known: Iterable<string>): Map<string, unknown> {
  const given = new Map<string, unknown>();
  for (const name of new Set([...visibleNames(value), ...known])) {
    // What every object has, such as toString, is no option; assigning `__proto__` would do harm besides.
    if (name in Object.prototype) continue;
    const option = (value as Record<string, unknown>)[name];
    if (option !== undefined) given.set(name, option);
  }
  return given;
}

/** The option at a path such as `kafka.consumer.groupId`; undefined wherever the way there ends. */
export function readPath(value: unknown, path: string): unknown {
  return path
    .split('.')
    .reduce<unknown>(
      (at, name) => (at === undefined || at === null ? undefined : (at as Record<string, unknown>)[name]),
      value,
    );
}

function visibleNames(value: object): string[] {
  const names = Object.keys(value);
  const parent = Object.getPrototypeOf(value) as object | null;
  if (parent === null || parent === Object.prototype) return names;
  const inherited = Object.entries(Object.getOwnPropertyDescriptors(parent))
    .filter(([, property]) => property.enumerable === true || property.get !== undefined)
    .map(([name]) => name);
  return [...names, ...inherited, ...visibleNames(parent)];
}
