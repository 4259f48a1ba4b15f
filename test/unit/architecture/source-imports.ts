import { readdirSync, readFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import ts from 'typescript';

/** One import, re-export, dynamic import or import type of a file of src/. */
export interface SourceImport {
  /** The importing file, below src/: `handler/idempotent.decorator.ts`. */
  readonly from: string;
  readonly line: number;
  /** As it is written: `../shared/errors.js`, `rxjs`. */
  readonly specifier: string;
  /** The imported file below src/ if the specifier is relative; it begins with `../` if that leads out of src/. */
  readonly file: string | undefined;
  /** Nothing of it is left when the types are gone. */
  readonly isType: boolean;
}

export function importsOf(folder: string): SourceImport[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((name) => name.replaceAll('\\', '/'))
    .filter((name) => name.endsWith('.ts'))
    .toSorted()
    .flatMap((name) => importsIn(name, readFileSync(join(folder, name), 'utf8')));
}

/** The imports of one file: `from` is its path below src/. */
export function importsIn(from: string, text: string): SourceImport[] {
  const source = ts.createSourceFile(from, text, ts.ScriptTarget.Latest, true);
  const found: SourceImport[] = [];
  const visit = (node: ts.Node): void => {
    const target = targetOf(node);
    if (target !== undefined)
      found.push({
        from,
        line: source.getLineAndCharacterOfPosition(node.getStart()).line + 1,
        ...target,
        file: fileOf(from, target.specifier),
      });
    ts.forEachChild(node, visit);
  };
  visit(source);
  return found;
}

type Target = Pick<SourceImport, 'specifier' | 'isType'>;

function targetOf(node: ts.Node): Target | undefined {
  if (ts.isImportDeclaration(node))
    return target(node.moduleSpecifier, node.importClause !== undefined && isTypeOnly(node.importClause));
  if (ts.isExportDeclaration(node) && node.moduleSpecifier !== undefined)
    return target(node.moduleSpecifier, node.isTypeOnly || areTypes(node.exportClause));
  if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) return target(node.argument.literal, true);
  if (ts.isExternalModuleReference(node)) return target(node.expression, false);
  if (ts.isCallExpression(node) && isLoad(node.expression)) return target(node.arguments[0], false);
  return undefined;
}

function target(specifier: ts.Node | undefined, isType: boolean): Target | undefined {
  return specifier !== undefined && ts.isStringLiteralLike(specifier)
    ? { specifier: specifier.text, isType }
    : undefined;
}

function isTypeOnly(clause: ts.ImportClause): boolean {
  if (clause.phaseModifier === ts.SyntaxKind.TypeKeyword) return true;
  return clause.name === undefined && areTypes(clause.namedBindings);
}

function areTypes(bindings: ts.NamedImportBindings | ts.NamedExportBindings | undefined): boolean {
  if (bindings === undefined || !(ts.isNamedImports(bindings) || ts.isNamedExports(bindings))) return false;
  return bindings.elements.length > 0 && bindings.elements.every((element) => element.isTypeOnly);
}

/** `import(…)` and `require(…)`. */
function isLoad(callee: ts.Expression): boolean {
  return callee.kind === ts.SyntaxKind.ImportKeyword || (ts.isIdentifier(callee) && callee.text === 'require');
}

function fileOf(from: string, specifier: string): string | undefined {
  if (!specifier.startsWith('.')) return undefined;
  return posix.join(posix.dirname(from), specifier).replace(/\.js$/, '.ts');
}
