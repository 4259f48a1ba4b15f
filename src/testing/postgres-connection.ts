import type { Socket } from 'node:net';
import type { NetworkConditions } from './faulty-pipe.js';
import { Conversation } from './postgres-conversation.js';
import { isCommit, type StatementFault } from './postgres-faults.js';
import {
  MessageFramer,
  bind,
  commandTag,
  errorCode,
  errorResponse,
  execute,
  parse,
  query,
  type Message,
} from './postgres-wire.js';
import { ProxiedConnection } from './proxied-connection.js';

/** What to do with the answer to a request. `drop` is for requests of the proxy's own. */
type Plan = FaultPlan | { kind: 'drop' };

interface FaultPlan {
  kind: 'swallow' | 'replace';
  fault: StatementFault;
  statement: string;
  struck: boolean;
}

// Not SQL: the server refuses it, and with it what the client asked for, by its own rules.
const REFUSED = 'REFUSED BY THE FAULT PROXY';

/**
 * One client's connection through the proxy.
 *
 * - Faults act on whole messages, in the order of the conversation, also when the client sends ahead.
 * - An answer made up by the proxy leaves the server in the state a real error would have: what goes to the server in
 *   place of the statement fails there too, and only the error's text is exchanged.
 */
export class PostgresConnection extends ProxiedConnection {
  private readonly conversation = new Conversation<Plan>();

  constructor(
    client: Socket,
    server: Socket,
    conditions: NetworkConditions,
    private readonly faultFor: (statement: string) => StatementFault | undefined,
  ) {
    super(client, server, conditions);
    void this.closed.then(() => this.giveBackOpen());
    this.readClient(new MessageFramer('client'), (message) => this.fromClient(message));
    this.readServer(new MessageFramer('server'), (message) => this.fromServer(message));
  }

  private fromClient(message: Message): void {
    if (message.type === 'ssl' || message.type === 'gss') {
      this.toClient.send(Buffer.from('N'));
      return;
    }
    const statement = this.conversation.statementOf(message);
    const fault = statement === undefined ? undefined : this.faultFor(statement);
    if (statement === undefined || !fault) return this.forward(message);
    switch (fault.action.kind) {
      case 'cutBefore':
        fault.strike({ statement });
        return this.cut();
      case 'swallowReply':
        return this.forward(message, { kind: 'swallow', fault, statement, struck: false });
      case 'answerWithError':
        return this.forwardRefusal(message.type, statement, { kind: 'replace', fault, statement, struck: false });
    }
  }

  private forward({ type, bytes }: Message, plan?: Plan): void {
    giveBack(this.conversation.sent(type, plan));
    this.toServer.send(bytes);
  }

  /** A failed COMMIT ends the transaction, any other failed statement only aborts it: so it is on the server, too. */
  private forwardRefusal(type: string, statement: string, plan: Plan): void {
    const drop: Plan = { kind: 'drop' };
    if (type === 'Q') {
      this.forward({ type: 'Q', bytes: query(isCommit(statement) ? 'ROLLBACK' : REFUSED) }, plan);
      return;
    }
    if (isCommit(statement)) {
      this.forward({ type: 'P', bytes: parse('ROLLBACK') }, drop);
      this.forward({ type: 'B', bytes: bind() }, drop);
      this.forward({ type: 'E', bytes: execute() }, drop);
    }
    this.forward({ type: 'P', bytes: parse(REFUSED) }, plan);
  }

  private fromServer(message: Message): void {
    const { plan, skipped } = this.conversation.received(message);
    giveBack(skipped);
    switch (plan?.kind) {
      case undefined:
        return this.toClient.send(message.bytes);
      case 'drop':
        // An error here is a real one, of the server's: the client has to hear it.
        if (message.type === 'E') this.toClient.send(message.bytes);
        return;
      case 'swallow':
        return this.swallow(message, plan);
      case 'replace':
        return this.replace(message, plan);
    }
  }

  private swallow(message: Message, plan: FaultPlan): void {
    const answer = answerOf(message);
    if (answer === undefined) return this.toClient.send(message.bytes);
    strike(plan, answer);
    this.cut();
  }

  private replace(message: Message, plan: FaultPlan): void {
    if (message.type !== 'E' && message.type !== 'C') return this.toClient.send(message.bytes);
    if (plan.fault.action.kind !== 'answerWithError') return;
    const { error } = plan.fault.action;
    this.toClient.send(errorResponse(error));
    strike(plan);
    if (error.severity !== 'FATAL' && error.severity !== 'PANIC') return;
    this.toServer.stop();
    this.server.destroy();
    this.toClient.end('fin');
  }

  private giveBackOpen(): void {
    giveBack(this.conversation.open);
  }
}

/** How the server answered a COMMIT; undefined for a message that is no such answer. */
function answerOf(message: Message): string | undefined {
  if (message.type === 'E') return errorCode(message);
  if (message.type !== 'C') return undefined;
  const tag = commandTag(message);
  return tag === 'COMMIT' || tag === 'ROLLBACK' ? tag : undefined;
}

function strike(plan: FaultPlan, answer?: string): void {
  plan.struck = true;
  plan.fault.strike({ statement: plan.statement, ...(answer !== undefined && { answer }) });
}

/** Their statements were never run: the faults wait for others. */
function giveBack(plans: Plan[]): void {
  for (const plan of plans) {
    if (plan.kind !== 'drop' && !plan.struck) plan.fault.giveBack();
  }
}
