/** Where the database is, configured or embedded; holds the password. Its own class so that it can be injected. */
export class DatabaseUrl {
  constructor(readonly value: string) {}

  toJSON(): string {
    return '[database url]';
  }
}
