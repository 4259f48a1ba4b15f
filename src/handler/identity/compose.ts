import type { IdSource } from '../../shared/record.js';
import { builtInSource, checkSources, idFrom, looksFor } from './id-source.js';

/**
 * The id of the first source that has one. A source that has one which must not be used (ID_INVALID) ends the search. Which source gave the id
 * is not part of it: the same text from two sources is the same event.
 */
export function firstOf(...sources: IdSource[]): IdSource {
  checkSources('firstOf', sources);
  return builtInSource(sources.map(looksFor).join(', then '), (record) => {
    for (const source of sources) {
      const id = idFrom(source, record);
      if (id !== undefined) return id;
    }
    return undefined;
  });
}

/**
 * One id of several parts, for example `join(header('source'), payload('id'))`. Undefined when a part is missing. Parts are separated by `|`, with `\`
 * before `|` or `\` inside one, so no two lists of parts give one id.
 */
export function join(...sources: IdSource[]): IdSource {
  checkSources('join', sources);
  return builtInSource(`all of (${sources.map(looksFor).join('; ')})`, (record) => {
    const parts: string[] = [];
    for (const source of sources) {
      const part = idFrom(source, record);
      if (part === undefined) return undefined;
      parts.push(part);
    }
    return joinedParts(parts);
  });
}

export function joinedParts(parts: readonly string[]): string {
  return parts.map((part) => part.replace(/[|\\]/g, '\\$&')).join('|');
}
