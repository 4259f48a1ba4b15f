import { handleBoth } from './handle-both.js';

// No process.exit: the process has to end by itself once the app is closed.
void handleBoth();
