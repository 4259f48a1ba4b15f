export function setting(name: string): string {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set: the package test sets it for this app.`);
  return value;
}
