import { createParamDecorator } from '@nestjs/common';
import { currentDelivery } from '../shared/delivery.js';

/**
 * The AbortSignal of the running delivery: it aborts at the handler's timeout, when the partition is lost, and at the shutdown's deadline. Hand it to what the handler
 * waits for (`fetch(url, { signal })`), so that it ends early instead of being killed. `undefined` in a handler that another transport calls.
 */
export const Signal: () => ParameterDecorator = createParamDecorator(() => currentDelivery()?.signal);
