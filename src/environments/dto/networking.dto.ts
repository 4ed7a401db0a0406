import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import { IsBoolean, IsIn } from 'class-validator';
import { IfPresent } from '../../common/http/validation.pipe.js';
import {
  HostPatternError,
  formatHostPattern,
  parseHostPattern,
} from '../../common/host-pattern.js';
import { OneOf } from '../../common/openapi/decorators.js';
import { Located, problem } from '../../common/validation/dto.js';
import { stringListProblems } from '../../common/validation/maps.js';

/** The hosts that a sandbox may reach. */
export type Networking =
  | { type: 'unrestricted' }
  | {
      type: 'limited';
      /** `api.example.com` or `*.example.org`; lower-case. */
      allowed_hosts: string[];
      allow_package_managers: boolean;
      allow_mcp_servers: boolean;
    };

const TYPES = ['unrestricted', 'limited'] as const;
const MAX_HOSTS = 256;
/** A name has 253 characters, a wildcard two more. */
const MAX_HOST_LENGTH = 255;

/** What the sandbox may reach. */
@ApiSchema({ name: 'NetworkingInput', description: 'What the sandbox may reach.' })
@OneOf(() => ({ unrestricted: UnrestrictedNetworkingDto, limited: LimitedNetworkingDto }))
export class NetworkingDto {
  @IsIn(TYPES)
  type!: 'unrestricted' | 'limited';
}

const PUBLIC_NAMES =
  'Every public name, on TCP ports 80, 443 and 22; never the host, the service, or private addresses.';

/** Every public name on the ports that are served. */
@ApiSchema({ name: 'UnrestrictedNetworkingInput', description: PUBLIC_NAMES })
export class UnrestrictedNetworkingDto {
  type!: 'unrestricted';
}

/** The same as it is read back: each union has members of its own, because generators make them its subclasses. */
@ApiSchema({ name: 'UnrestrictedNetworking', description: PUBLIC_NAMES })
class UnrestrictedNetworkingResponse {
  type!: 'unrestricted';
}

/** An allow-list by name. */
@ApiSchema({
  name: 'LimitedNetworkingInput',
  description:
    "An allow-list by name, on TCP ports 80, 443 and 22. The agent's own model API and the hosts of the session's repositories are always allowed; with no hosts, nothing else is.",
})
export class LimitedNetworkingDto extends NetworkingDto {
  @ApiProperty({ enum: ['limited'] })
  override type!: 'limited';

  /** Host names: no scheme, port, path or address. `*.` stands for any subdomain, not for the name itself. Default `[]`. */
  @ApiProperty({
    type: [String],
    maxItems: MAX_HOSTS,
    items: { type: 'string', maxLength: MAX_HOST_LENGTH },
    example: ['api.example.com', '*.example.org'],
  })
  @IfPresent()
  @Located(hostsProblems)
  allowed_hosts?: string[];

  /** Also allow the registries of the package managers. Default false. */
  @IfPresent()
  @IsBoolean()
  allow_package_managers?: boolean;

  /** Also allow the hosts of the agent's tool servers. Default false. */
  @IfPresent()
  @IsBoolean()
  allow_mcp_servers?: boolean;
}

/** The allow-list as it is read back: hosts in their one form, each once. */
@ApiSchema({ name: 'LimitedNetworking', description: 'An allow-list by name.' })
class LimitedNetworkingResponse {
  type!: 'limited';
  /** @example ["api.example.com", "*.example.org"] */
  allowed_hosts!: string[];
  allow_package_managers!: boolean;
  allow_mcp_servers!: boolean;
}

/** Networking as it is read back. */
@ApiSchema({ name: 'Networking', description: 'What the sandbox may reach.' })
@OneOf(() => ({
  unrestricted: UnrestrictedNetworkingResponse,
  limited: LimitedNetworkingResponse,
}))
export class NetworkingResponse {}

/** The class that validates a `networking` object. */
export function networkingDtoOf(item: Readonly<Record<string, unknown>>): typeof NetworkingDto {
  return item.type === 'limited' ? LimitedNetworkingDto : NetworkingDto;
}

/** Adds the defaults to a validated `networking`, and normalizes and deduplicates its hosts. */
export function readNetworking(dto: NetworkingDto): Networking {
  if (dto.type === 'unrestricted') return { type: 'unrestricted' };
  const limited = dto as LimitedNetworkingDto;
  const hosts = (limited.allowed_hosts ?? []).map((host) =>
    formatHostPattern(parseHostPattern(host)),
  );
  return {
    type: 'limited',
    allowed_hosts: [...new Set(hosts)],
    allow_package_managers: limited.allow_package_managers ?? false,
    allow_mcp_servers: limited.allow_mcp_servers ?? false,
  };
}

function hostsProblems(value: unknown) {
  const wrong = stringListProblems(value, { maxSize: MAX_HOSTS, maxLength: MAX_HOST_LENGTH });
  if (wrong.length > 0) return wrong;
  return (value as string[]).flatMap((host, index) =>
    isHostPattern(host) ? [] : [problem('host_pattern', HOST_MESSAGE, [index])],
  );
}

function isHostPattern(text: string): boolean {
  try {
    parseHostPattern(text);
    return true;
  } catch (error) {
    if (error instanceof HostPatternError) return false;
    throw error;
  }
}

/** The parser's own message quotes the host, but a 422 must not repeat submitted values. */
const HOST_MESSAGE =
  'Must be a host name such as api.example.com or *.example.com, without scheme, port or path; not an address';
