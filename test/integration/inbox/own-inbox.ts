import { beforeEach } from 'vitest';
import { Inbox } from '#src/inbox/inbox.js';
import { qualifiedTable } from '#src/shared/sql-identifier.js';
import { useDatabase, useSchema } from '../schema/own-schema.js';

/** An inbox on a schema of its own, whose table each test finds empty. */
export function useInbox() {
  const own = useSchema(useDatabase());
  const open = (query: ConstructorParameters<typeof Inbox>[1]): Inbox => {
    const inbox = new Inbox(1000, query);
    inbox.open(qualifiedTable(own.name, 'processed_events'));
    return inbox;
  };
  const state = {
    own,
    inbox: undefined as unknown as Inbox,
    /** How PostgreSQL would find what is asked. */
    async planOf(ask: (inbox: Inbox) => Promise<unknown>): Promise<string> {
      await own.dataSource.query('VACUUM ANALYZE processed_events');
      let plan = '';
      const explaining = open(async (sql, values) => {
        const rows = await own.dataSource.query<{ 'QUERY PLAN': string }[]>(`EXPLAIN ${sql}`, [...values]);
        plan = rows.map((row) => row['QUERY PLAN']).join('\n');
        return [];
      });
      await ask(explaining);
      return plan;
    },
  };
  beforeEach(async () => {
    await own.dataSource.runMigrations();
    state.inbox = open((sql, values) => own.dataSource.query<unknown[]>(sql, [...values]));
  });
  return state;
}
