import { httpUrlProblem } from '../http-url.js';
import { Located, problem } from './located.js';

/** An `http` or `https` address without user and password. */
export function HttpUrl(): PropertyDecorator {
  return Located((value) => {
    if (typeof value !== 'string') return [problem('string_type', 'Must be a string')];
    const wrong = httpUrlProblem(value);
    return wrong === undefined ? [] : [problem('url', wrong)];
  });
}
