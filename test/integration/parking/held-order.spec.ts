import { describe, expect, it } from 'vitest';
import { useParking } from './kit.js';
import { Simulation, type SimulationOptions } from './simulation.js';

const kit = useParking();
const simulate = (seed: number, load: SimulationOptions['load'], events = 240) =>
  new Simulation(kit, { seed, events, load }).run();

describe('with owners that come and go, zombies and two workers', () => {
  it('F33: no event is lost, doubled or out of order', async () => {
    const counts = { moves: 0, parked: 0, held: 0, zombieSteps: 0 };
    for (const seed of [1, 2, 3]) {
      await kit.dataSource.query('TRUNCATE effects, processed_events');
      const { lost, doubled, outOfOrder, ...more } = await simulate(seed, 'after the join');
      expect({ seed, lost, doubled, outOfOrder }).toEqual({ seed, lost: 0, doubled: 0, outOfOrder: 0 });
      for (const name of ['moves', 'parked', 'held', 'zombieSteps'] as const) counts[name] += more[name];
    }
    // How often, in one run, depends on the machine; together it is enough.
    expect(counts.moves).toBeGreaterThan(15);
    expect(counts.parked).toBeGreaterThan(30);
    expect(counts.held).toBeGreaterThan(15);
    expect(counts.zombieSteps).toBeGreaterThan(15);
  }, 120_000);

  // The simulation sees what it has to see.
  it.each(['before the join', 'never'] as const)(
    'events come out of order when what is parked is read %s',
    async (load) => {
      let outOfOrder = 0;
      for (let seed = 1; seed <= 6 && outOfOrder === 0; seed += 1) {
        await kit.dataSource.query('TRUNCATE effects, processed_events');
        ({ outOfOrder } = await simulate(seed, load));
      }
      expect(outOfOrder).toBeGreaterThan(0);
    },
    240_000,
  );
});
