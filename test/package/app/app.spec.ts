import { handleBoth } from './handle-both';

test('the app handles the event', () => handleBoth(), 60_000);
