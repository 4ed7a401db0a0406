import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import type { StoredUsage } from '../usage-columns.js';

/** Sums of sessions may exceed 32 bits. */
const count = () => ApiProperty({ type: 'integer', format: 'int64', minimum: 0, example: 0 });

/** What an agent's requests to its model have used. */
@ApiSchema({
  name: 'Usage',
  description:
    'What the requests of an agent to its model have used, as the provider reported it. Complete when the turn has ended.',
})
export class UsageObject {
  /** Tokens of prompts, without those that were read from or written to the provider's cache. */
  @count()
  input_tokens!: number;

  /** Tokens that the model has produced, reasoning included. */
  @count()
  output_tokens!: number;

  /** Tokens of prompts that the provider read from its cache. */
  @count()
  cache_read_input_tokens!: number;

  /** Tokens of prompts that the provider wrote to its cache. */
  @count()
  cache_creation_input_tokens!: number;

  /** Requests that the provider answered with success. */
  @count()
  requests!: number;

  /** By the price list of the service. `null` where the price of a model is not known. */
  @ApiProperty({ type: Number, nullable: true, example: 0 })
  cost_usd!: number | null;

  /** Seconds that turns have run, provisioning included. */
  @ApiProperty({ type: Number, minimum: 0, example: 1.25 })
  active_seconds!: number;
}

/** What statements read → what clients read. */
export function presentUsage({ sums, activeSeconds }: StoredUsage): UsageObject {
  return {
    input_tokens: sums?.input_tokens ?? 0,
    output_tokens: sums?.output_tokens ?? 0,
    cache_read_input_tokens: sums?.cache_read_input_tokens ?? 0,
    cache_creation_input_tokens: sums?.cache_creation_input_tokens ?? 0,
    requests: sums?.requests ?? 0,
    cost_usd: sums === null ? 0 : sums.cost_usd,
    active_seconds: Math.round(activeSeconds * 1000) / 1000,
  };
}
