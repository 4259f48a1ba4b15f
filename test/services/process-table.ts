import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync, statSync } from 'node:fs';

export interface ProcessEntry {
  pid: number;
  parent: number;
  /** Opaque; together with the pid it names one process for good, since pids are used again. */
  startedAt: string;
  /** Stopped by SIGSTOP. */
  isStopped: boolean;
}

/** The processes that run now (a zombie has ended and is left out), from /proc where there is one, else from `ps`. */
export function processTable(): Map<number, ProcessEntry> {
  const entries = process.platform === 'linux' ? entriesOfProc() : entriesOfPs();
  return new Map(entries.map((entry) => [entry.pid, entry]));
}

/** One process of the table, or undefined if it has ended. */
export function processEntry(pid: number): ProcessEntry | undefined {
  return process.platform === 'linux' ? entryOfProc(pid) : processTable().get(pid);
}

/** The command line of a running process, arguments joined by blanks; empty if it has ended. */
export function commandLineOf(pid: number): string {
  if (process.platform === 'linux') return readProc(`/proc/${pid}/cmdline`).replaceAll('\0', ' ');
  return ps('-p', String(pid), '-o', 'command=');
}

/** Pids of different pid namespaces (containers that share a temp folder) say nothing about each other. */
export function pidNamespace(): string {
  if (process.platform !== 'linux') return '0';
  return String(statSync('/proc/self/ns/pid').ino);
}

function entriesOfProc(): ProcessEntry[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => entryOfProc(Number(name)) ?? []);
}

function entryOfProc(pid: number): ProcessEntry | undefined {
  const stat = readProc(`/proc/${pid}/stat`);
  if (stat === '') return undefined;
  // The second field is the program's name in parentheses and may hold blanks and parentheses itself.
  const [state, parent, ...rest] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  if (state === 'Z' || state === 'X') return undefined;
  return { pid, parent: Number(parent), startedAt: rest[17] ?? '', isStopped: state === 'T' };
}

function entriesOfPs(): ProcessEntry[] {
  return ps('-A', '-o', 'pid=,ppid=,stat=,lstart=')
    .split('\n')
    .map((line) => line.trim().split(/\s+/))
    .filter(([pid, , stat]) => pid !== '' && !stat?.startsWith('Z'))
    .map(([pid, parent, stat, ...startedAt]) => ({
      pid: Number(pid),
      parent: Number(parent),
      startedAt: startedAt.join('').replace(/\W/g, ''),
      isStopped: stat?.startsWith('T') ?? false,
    }));
}

/** A process may end between two looks: what cannot be read any more is empty. */
function readProc(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

function ps(...args: string[]): string {
  try {
    return execFileSync('ps', args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  } catch {
    return ''; // ps exits 1 when no process matches
  }
}
