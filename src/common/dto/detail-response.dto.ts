/** A sentence: what was done, or why not. */
export class DetailResponse {
  detail!: string;
}
