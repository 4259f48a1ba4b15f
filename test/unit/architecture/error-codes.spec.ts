import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { ERROR_CODES } from '#src/shared/errors.js';
import { packageRoot } from '../../services/package-root.js';

const path = join(packageRoot(), 'docs/errors.md');

it('docs/errors.md has one heading for each error code, and no other', () => {
  const headings = documentedCodes();
  const codes: readonly string[] = ERROR_CODES;
  expect({
    'codes of src/shared/errors.ts without a heading': codes.filter((code) => !headings.includes(code)),
    'headings that are no code': headings.filter((heading) => !codes.includes(heading)),
    'headings that come twice': headings.filter((heading, index) => headings.indexOf(heading) !== index),
  }).toEqual({
    'codes of src/shared/errors.ts without a heading': [],
    'headings that are no code': [],
    'headings that come twice': [],
  });
});

/** `## OPTIONS_INVALID`, at any depth, with or without backticks. */
function documentedCodes(): string[] {
  if (!existsSync(path))
    throw new Error('docs/errors.md is missing: it explains every error code under a heading of its own.');
  return [...readFileSync(path, 'utf8').matchAll(/^#{2,6} +`?([A-Z][A-Z\d]*(?:_[A-Z\d]+)+)`? *$/gm)].map(
    ([, code]) => code ?? '',
  );
}
