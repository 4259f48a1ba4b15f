import * as orm1 from 'typeorm';
import * as orm03 from 'typeorm-03';

export type Orm = typeof orm1;

/** Both TypeORM majors, the same code on each. */
export const versions: [name: string, orm: Orm][] = [
  ['TypeORM 1.x', orm1],
  ['TypeORM 0.3', orm03 as unknown as Orm],
];
