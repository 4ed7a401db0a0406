import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { Injectable, Logger } from '@nestjs/common';
import { conflict, notFound } from '../common/errors.js';
import {
  belowVersion,
  type ListQuery,
  lookAhead,
  mapPages,
  type Pages,
  positionAfter,
} from '../common/lists/list-request.js';
import { type ListedVersion, type VersionedContent } from '../database/versioned-rows.js';
import { updateOptimistically } from '../database/optimistic-update.js';
import type { SqlExecutor } from '../database/sql.js';
import { RepeatableRequests } from '../idempotency/repeatable-requests.js';
import { ProviderCatalogue } from '../runtimes/provider-catalogue.js';
import { KeyRing, secretContext } from '../secrets/key-ring.js';
import {
  type CreateEnvironmentDto,
  type UpdateEnvironmentDto,
  requireUnreserved,
  withoutReserved,
  type EnvironmentState,
} from './dto/environment.dto.js';
import { readNetworking, type Networking } from './dto/networking.dto.js';
import type { EnvironmentEntity, EnvironmentSnapshot } from './entities/environment.entity.js';
import { EnvironmentsRepository } from './environments.repository.js';
import { type PackageSpec, readPackages } from './packages.js';

const NOT_FOUND = 'Environment not found';

/** The definition of an environment with decrypted secrets. It must not leave the process except to a sandbox. */
export interface EnvironmentDefinition {
  name: string | null;
  packages: PackageSpec[];
  envVars: Record<string, string>;
  setupScript: string;
  networking: Networking;
}

/** The pinned version of an environment from which a sandbox is made. */
export type PinnedEnvironment = Omit<EnvironmentDefinition, 'name'>;

const EMPTY: EnvironmentDefinition = {
  name: null,
  packages: [],
  envVars: {},
  setupScript: '',
  networking: { type: 'unrestricted' },
};

/** Environments of users. Every method takes the owner; environments of other users are not found. */
@Injectable()
export class EnvironmentsService {
  private readonly logger = new Logger(EnvironmentsService.name);

  constructor(
    private readonly environments: EnvironmentsRepository,
    private readonly keys: KeyRing,
    private readonly catalogue: ProviderCatalogue,
    private readonly requests: RepeatableRequests,
  ) {}

  /**
   * @param key the idempotency key: repeating the request with it within a day returns the environment as it was
   * created.
   * @throws InvalidBody for reserved names in `env_vars`.
   */
  async create(userId: string, dto: CreateEnvironmentDto, key?: string): Promise<EnvironmentState> {
    requireUnreserved(dto.env_vars, this.catalogue.reservedVariables);
    return this.requests.once<EnvironmentState>({
      userId,
      route: 'POST /environments',
      body: dto,
      key,
      work: async (reserve) => {
        const definition = apply(EMPTY, dto);
        await this.environments.refuseEarly(userId, definition);
        const id = randomUUID();
        const content = this.contentOf(id, 1, definition);
        return this.environments.create(userId, id, content, reserve);
      },
      repeat: (id) => this.asCreated(userId, id),
    });
  }

  private async asCreated(userId: string, id: string): Promise<EnvironmentState> {
    const environment = await this.require(userId, id);
    const first = await this.environments.findVersionUnscoped(id, 1);
    if (!first) throw notFound(NOT_FOUND);
    return stateIn(environment, { ...first, version: 1, createdAt: environment.createdAt });
  }

  /** The active environments, newest first. @throws DomainError 400 if `after` is no item of the list. */
  async list(userId: string, query: ListQuery): Promise<Pages<EnvironmentState>> {
    const after = await positionAfter(query, (id) => this.environments.position(userId, id));
    return this.environments.list(userId, { after, limit: lookAhead(query) });
  }

  /** @throws DomainError 404. */
  async get(userId: string, id: string): Promise<EnvironmentState> {
    return this.require(userId, id);
  }

  /** @throws InvalidBody for reserved names in `env_vars`; DomainError 404; 409 when archived or of another version. */
  async update(userId: string, id: string, dto: UpdateEnvironmentDto): Promise<EnvironmentState> {
    requireUnreserved(dto.env_vars, this.catalogue.reservedVariables);
    return updateOptimistically({
      submittedVersion: dto.version,
      archivedDetail: 'Cannot update an archived environment',
      read: () => this.require(userId, id),
      change: (current) => {
        const before = this.definitionOf(current);
        const after = apply(before, dto);
        return isDeepStrictEqual(before, after) ? undefined : after;
      },
      write: async (current, after) => {
        await this.environments.refuseEarly(userId, after);
        const content = this.contentOf(current.id, current.version + 1, after);
        return this.environments.replace(current, content);
      },
    });
  }

  /** @throws DomainError 404; 409 when it is archived. */
  async archive(userId: string, id: string): Promise<EnvironmentState> {
    const { id: known } = await this.require(userId, id);
    if (!(await this.environments.archive(userId, known))) {
      await this.require(userId, id);
      throw conflict('Environment is already archived');
    }
    return this.require(userId, id);
  }

  /**
   * Removes it for good, active or archived.
   * @throws DomainError 404; 409 when a session ever referenced it.
   */
  async delete(userId: string, id: string): Promise<void> {
    const { id: known } = await this.require(userId, id);
    if (await this.environments.deleteUnreferenced(userId, known)) return;
    await this.require(userId, id);
    throw conflict('Cannot delete environment with existing sessions');
  }

  /** The history, newest first. @throws DomainError 404; 400 if `after` is no item of the list. */
  async versions(userId: string, id: string, query: ListQuery): Promise<Pages<EnvironmentState>> {
    const environment = await this.require(userId, id);
    const below = belowVersion(query);
    const limit = lookAhead(query);
    const versions = this.environments.listVersionsUnscoped(environment.id, { below, limit });
    return mapPages(versions, (row) => stateIn(environment, row));
  }

  /** Does the user have such an environment? It may be archived. */
  async exists(userId: string, id: string): Promise<boolean> {
    return (await this.environments.findPin(userId, id)) !== undefined;
  }

  /**
   * The version that a session created now would get.
   * @throws DomainError 404; 409 when it is archived.
   */
  async pinForSession(
    userId: string,
    id: string,
    sql?: SqlExecutor,
  ): Promise<{ id: string; version: number }> {
    const pin = await this.environments.findPin(userId, id, sql);
    if (!pin) throw notFound(NOT_FOUND);
    if (pin.archived) throw conflict('Cannot create session with archived environment');
    return { id: pin.id, version: pin.version };
  }

  /**
   * Marks the environment as used in the transaction that inserts the session; from then on it cannot be deleted.
   * @returns the version to pin.
   * @throws DomainError 404 when it was deleted in the meantime; 409 when it was archived.
   */
  async markReferenced(sql: SqlExecutor, userId: string, id: string): Promise<{ version: number }> {
    const marked = await this.environments.markReferenced(sql, userId, id);
    return marked ?? this.pinForSession(userId, id, sql);
  }

  /**
   * One version with its secrets decrypted, for the runner. Leaves out variables that were stored before their names
   * were reserved, because they could make a program send the operator's key to a host of the environment's author.
   */
  async pinnedUnscoped(id: string, version: number): Promise<PinnedEnvironment> {
    const found = await this.environments.findVersionUnscoped(id, version);
    if (!found) throw new Error(`Environment ${id} has no version ${version}`);
    const { packages, setupScript, networking } = found.snapshot;
    const context = secretContext.environmentVersion(id, version);
    const { exported: envVars, dropped } = withoutReserved(
      this.keys.openRecord<string>(found.sealed, context),
      this.catalogue.reservedVariables,
    );
    if (dropped.length > 0) {
      this.logger.warn({
        msg: `Environment ${id}: ${dropped.join(', ')} not exported, because only the service sets them; remove them from env_vars`,
        environment_id: id,
        environment_version: version,
      });
    }
    return { packages, envVars, setupScript, networking };
  }

  /** The versions that new sessions would get. Environments that get no more sessions are missing. */
  async currentVersionsUnscoped(ids: readonly string[]): Promise<Map<string, number>> {
    if (ids.length === 0) return new Map();
    const rows = await this.environments.currentVersionsUnscoped(ids);
    return new Map(rows.map(({ id, version }) => [id, version]));
  }

  private async require(userId: string, id: string): Promise<EnvironmentEntity> {
    const environment = await this.environments.find(userId, id);
    if (!environment) throw notFound(NOT_FOUND);
    return environment;
  }

  private definitionOf(environment: EnvironmentEntity): EnvironmentDefinition {
    const { id, name, packages, setupScript, networking, envVarsSealed } = environment;
    const envVars = this.keys.openRecord<string>(envVarsSealed, secretContext.environment(id));
    return { name, packages, envVars, setupScript, networking };
  }

  private contentOf(
    id: string,
    version: number,
    { envVars, ...shown }: EnvironmentDefinition,
  ): VersionedContent<EnvironmentSnapshot> {
    return {
      snapshot: { ...shown, envVarKeys: Object.keys(envVars).sort() },
      sealed: {
        resource: this.keys.sealRecord(envVars, secretContext.environment(id)),
        version: this.keys.sealRecord(envVars, secretContext.environmentVersion(id, version)),
      },
    };
  }
}

/** Members of the body replace the current values; others stay. */
function apply(before: EnvironmentDefinition, dto: CreateEnvironmentDto): EnvironmentDefinition {
  return {
    name: dto.name === undefined ? before.name : dto.name,
    packages: dto.packages === undefined ? before.packages : readPackages(dto.packages),
    envVars: dto.env_vars ?? before.envVars,
    setupScript: dto.setup_script ?? before.setupScript,
    networking: dto.networking === undefined ? before.networking : readNetworking(dto.networking),
  };
}

function stateIn(
  environment: EnvironmentEntity,
  row: ListedVersion<EnvironmentSnapshot>,
): EnvironmentState {
  return {
    ...row.snapshot,
    id: environment.id,
    version: row.version,
    createdAt: row.createdAt,
    updatedAt: row.createdAt,
    archivedAt: null,
  };
}
