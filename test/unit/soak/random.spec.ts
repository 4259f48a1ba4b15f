import { expect, test } from 'vitest';
import { Random } from '../../soak/random.js';

test('a seed gives the same choices each time, another seed others', () => {
  const choices = (seed: number): number[] => {
    const random = new Random(seed);
    return Array.from({ length: 20 }, () => random.between(1, 1_000));
  };
  expect(choices(7)).toEqual(choices(7));
  expect(choices(7)).not.toEqual(choices(8));
});

test('both bounds are reached, and weights count', () => {
  const random = new Random(1);
  const seen = new Set(Array.from({ length: 200 }, () => random.between(1, 3)));
  expect([...seen].sort((a, b) => a - b)).toEqual([1, 2, 3]);
  const [rare, often] = [
    { name: 'rare', weight: 1 },
    { name: 'often', weight: 9 },
  ];
  const picked = Array.from({ length: 1_000 }, () => random.weighted([rare!, often!]).name);
  expect(picked.filter((name) => name === 'rare').length).toBeGreaterThan(50);
  expect(picked.filter((name) => name === 'rare').length).toBeLessThan(200);
});
