import { boundPortal, closedName, executedPortal, parsedStatement, queryText, type Message } from './postgres-wire.js';

/**
 * What a connection has been asked and what answers are still to come. Pure: fed with messages in the order they travel.
 *
 * - Clients send ahead (pipelining), so an answer is matched by counting, not by time: each request that gets an answer
 *   stands in a queue, and an answer belongs to the first of it.
 * - After an error in the extended protocol the server skips everything up to the next Sync: those get no answer.
 *
 * `Plan` is whatever the caller wants to be reminded of when the answer comes.
 */
export class Conversation<Plan> {
  private readonly statements = new Map<string, string>();
  private readonly portals = new Map<string, string>();
  private readonly awaited: Awaited<Plan>[] = [];
  private skipsToSync = false;

  /** The SQL text that this client message would run: of a Query, or of an Execute whose statement was parsed before. */
  statementOf(message: Message): string | undefined {
    switch (message.type) {
      case 'Q':
        return queryText(message);
      case 'E':
        return this.portals.get(executedPortal(message));
      case 'P': {
        const { name, text } = parsedStatement(message);
        this.statements.set(name, text);
        return undefined;
      }
      case 'B': {
        const { portal, statement } = boundPortal(message);
        this.portals.set(portal, this.statements.get(statement) ?? '');
        return undefined;
      }
      case 'C': {
        const { kind, name } = closedName(message);
        (kind === 'statement' ? this.statements : this.portals).delete(name);
        return undefined;
      }
      default:
        return undefined;
    }
  }

  /** Notes that a client message of this type goes to the server. Call it in sending order. */
  sent(type: string, plan?: Plan): Skipped<Plan> {
    const endsWith = ANSWER_ENDS.get(type);
    if (endsWith === undefined) return [];
    const skipped = this.skipsToSync && !RESUMES.has(type);
    if (skipped) return plan === undefined ? [] : [plan];
    this.skipsToSync = false;
    this.awaited.push({ type, endsWith, plan });
    return [];
  }

  /** Tells what a server message answers, and which plans will never get their answer because of it. */
  received(message: Message): Answer<Plan> {
    const [first] = this.awaited;
    if (!first || ASIDE.has(message.type)) return { plan: undefined, skipped: [] };
    if (message.type === 'E' && !RESUMES.has(first.type)) return { plan: first.plan, skipped: this.skipToSync() };
    if (first.endsWith.includes(message.type)) this.awaited.shift();
    return { plan: first.plan, skipped: [] };
  }

  /** Plans whose answers have not come. */
  get open(): Plan[] {
    return this.awaited.flatMap(({ plan }) => plan ?? []);
  }

  private skipToSync(): Skipped<Plan> {
    const sync = this.awaited.findIndex(({ type }) => type === 'S');
    this.skipsToSync = sync < 0;
    const [, ...skipped] = this.awaited.splice(0, sync < 0 ? this.awaited.length : sync);
    return skipped.flatMap(({ plan }) => plan ?? []);
  }
}

export type Skipped<Plan> = Plan[];

export interface Answer<Plan> {
  plan: Plan | undefined;
  skipped: Skipped<Plan>;
}

interface Awaited<Plan> {
  type: string;
  /** Types of the server's messages that end the answer. */
  endsWith: string;
  plan: Plan | undefined;
}

/** Client messages that are answered. Flush, password, COPY data and Terminate are not. */
const ANSWER_ENDS = new Map([
  ['startup', 'Z'],
  ['Q', 'Z'],
  ['F', 'Z'],
  ['S', 'Z'],
  ['P', '1'],
  ['B', '2'],
  ['D', 'Tn'],
  ['E', 'CIs'],
  ['C', '3'],
]);

/** Requests that end with ReadyForQuery even after an error. */
const RESUMES = new Set(['startup', 'Q', 'F', 'S']);

/** Notice, notification and parameter status come at any time and answer nothing. */
const ASIDE = new Set(['N', 'A', 'S']);
