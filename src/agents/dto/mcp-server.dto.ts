import { isDeepStrictEqual } from 'node:util';
import { ApiProperty, ApiSchema } from '@nestjs/swagger';
import { IsIn, IsString, Matches, MaxLength, MinLength } from 'class-validator';
import { IfPresent } from '../../common/http/validation.pipe.js';
import { OneOf } from '../../common/openapi/decorators.js';
import { HttpUrl } from '../../common/validation/dto.js';
import { StringList, StringMap } from '../../common/validation/maps.js';
import type { McpServer } from '../../runtimes/agent-runtime.js';

const TYPES = ['stdio', 'http', 'sse', 'url'] as const;

/** A tool server that the agent can call. */
@ApiSchema({
  name: 'McpServerInput',
  description:
    'A tool server that the agent can call, with its secrets: `stdio`, a program in the sandbox; `http` or `sse`, a remote server.',
})
@OneOf(() => ({
  stdio: StdioMcpServerDto,
  http: RemoteMcpServerDto,
  sse: RemoteMcpServerDto,
  url: RemoteMcpServerDto,
}))
export class McpServerDto {
  @IsIn(TYPES)
  type!: (typeof TYPES)[number];

  /**
   * Unique within the agent.
   * @example "tickets"
   */
  @Matches(/^[A-Za-z0-9_-]+$/, {
    message: 'A name has only letters, digits, hyphens and underscores',
  })
  @MaxLength(64)
  @MinLength(1)
  @IsString()
  name!: string;
}

/** A program that runs in the sandbox and speaks over stdin and stdout. */
@ApiSchema({
  name: 'StdioMcpServerInput',
  description: 'A program that runs in the sandbox and speaks over stdin and stdout.',
})
export class StdioMcpServerDto extends McpServerDto {
  @ApiProperty({ enum: ['stdio'] })
  override type!: 'stdio';

  /** @example "npx" */
  @MaxLength(4_096)
  @MinLength(1)
  @IsString()
  command!: string;

  /**
   * Do not put secrets here: arguments are shown.
   * @example ["-y", "@example/tickets-mcp"]
   */
  @IfPresent()
  @StringList({ maxSize: 256, maxLength: 16_384 })
  args?: string[];

  /**
   * Variables of its environment, names without a digit first. Write-only: responses have `env_keys`. Left out on `PUT`,
   * those of the server with this name stay if `command` and `args` do.
   */
  @IfPresent()
  @StringMap({
    maxSize: 64,
    maxKeyLength: 255,
    maxValueLength: 65_536,
    key: {
      pattern: /^[A-Za-z_][A-Za-z0-9_]*$/,
      msg: 'The name of a variable has only letters, digits and underscores, and no digit first',
    },
  })
  env?: Record<string, string>;
}

/** A server that is reached over HTTP. */
@ApiSchema({ name: 'RemoteMcpServerInput', description: 'A server that is reached over HTTP.' })
export class RemoteMcpServerDto extends McpServerDto {
  /** `url` is another word for `http`, which is what is read back. */
  @ApiProperty({ enum: ['http', 'sse', 'url'] })
  override type!: 'http' | 'sse' | 'url';

  /**
   * `http` or `https`, without user and password: secrets belong into `headers`.
   * @example "https://mcp.example.com/tickets"
   */
  @HttpUrl()
  url!: string;

  /**
   * Headers of each request, of one line. Write-only: responses have `header_keys`. Left out on `PUT`, those of the server
   * with this name stay if `type` and `url` do.
   */
  @IfPresent()
  @StringMap({
    maxSize: 64,
    maxKeyLength: 255,
    maxValueLength: 16_384,
    key: { pattern: /^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/, msg: 'Not the name of an HTTP header' },
    value: { pattern: /^[^\r\n]*$/, msg: 'A header has only one line' },
  })
  headers?: Record<string, string>;
}

/** The class that validates an item of `mcp_servers`. */
export function mcpServerDtoOf(item: Readonly<Record<string, unknown>>): typeof McpServerDto {
  if (item.type === 'stdio') return StdioMcpServerDto;
  return TYPES.includes(item.type as 'http') ? RemoteMcpServerDto : McpServerDto;
}

/**
 * Adds the defaults to a validated item. Secrets that are left out are copied from the current server of this name if
 * it has the same target, so that a client can send back what it has read, which contains no secrets. Another target
 * never gets them.
 */
export function readMcpServer(dto: McpServerDto, before: readonly McpServer[]): McpServer {
  const server = withoutSecrets(dto);
  const same = before.find(({ name }) => name === server.name);
  if (server.type === 'stdio') {
    const { env } = dto as StdioMcpServerDto;
    const kept = same?.type === 'stdio' && hasTarget(same, server) ? same.env : {};
    return { ...server, env: env ?? kept };
  }
  const { headers } = dto as RemoteMcpServerDto;
  const kept = same && same.type !== 'stdio' && hasTarget(same, server) ? same.headers : {};
  return { ...server, headers: headers ?? kept };
}

type Target = Omit<StdioServer, 'env'> | Omit<RemoteServer, 'headers'>;
type StdioServer = Extract<McpServer, { type: 'stdio' }>;
type RemoteServer = Exclude<McpServer, StdioServer>;

function withoutSecrets(dto: McpServerDto): Target {
  if (dto instanceof StdioMcpServerDto) {
    const { name, command, args = [] } = dto;
    return { type: 'stdio', name, command, args };
  }
  const { name, url } = dto as RemoteMcpServerDto;
  return { type: dto.type === 'sse' ? 'sse' : 'http', name, url };
}

/** Does the server have this target: the same program with the same arguments, or the same URL? */
function hasTarget(server: McpServer, target: Target): boolean {
  return isDeepStrictEqual({ ...server, ...target }, server);
}
