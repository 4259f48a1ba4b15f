import { describe, expect, it } from 'vitest';
import { useParking } from './kit.js';
import { Simulation, type SimulationOptions } from './simulation.js';

const kit = useParking();
const simulate = (seed: number, load: SimulationOptions['load'], events = 240) =>
  new Simulation(kit, { seed, events, load }).run();

describe('with owners that come and go, zombies and two workers', () => {
  it.each([1, 2, 3])(
    'F33: no event is lost, doubled or out of order: seed %i',
    async (seed) => {
      const result = await simulate(seed, 'after the join');
      expect(result).toMatchObject({ lost: 0, doubled: 0, outOfOrder: 0 });
      expect(result.moves).toBeGreaterThan(5);
      expect(result.parked).toBeGreaterThan(10);
      expect(result.held).toBeGreaterThan(10);
      expect(result.zombieSteps).toBeGreaterThan(5);
    },
    120_000,
  );

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
