const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Is this text a UUID, so that PostgreSQL takes it as one? What is not cannot be the id of anything: a 404. */
export function isUuid(text: string): boolean {
  return UUID.test(text);
}
