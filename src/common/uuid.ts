const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Is this an id as the server writes them? Anything else is the id of nothing: a 404, not an error. */
export function isUuid(text: string): boolean {
  return UUID.test(text);
}
