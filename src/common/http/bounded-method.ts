const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/** A request's method as one of a few words, for names and labels: clients may send any. */
export function boundedMethod(method: string): string {
  return METHODS.has(method) ? method : 'OTHER';
}
