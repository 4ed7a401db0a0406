import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { Injectable } from '@nestjs/common';
import { conflict, notFound } from '../common/errors.js';
import { updateOptimistically } from '../common/optimistic-update.js';
import type { SqlExecutor } from '../database/sql.js';
import { KeyRing } from '../secrets/key-ring.js';
import { secretContext } from '../secrets/secret-contexts.js';
import type { CreateEnvironmentDto, UpdateEnvironmentDto } from './dto/environment-body.dto.js';
import type { EnvironmentState } from './dto/environment-response.dto.js';
import { readNetworking } from './dto/networking.dto.js';
import type { EnvironmentVersionEntity } from './entities/environment-version.entity.js';
import type { EnvironmentEntity } from './entities/environment.entity.js';
import { type EnvironmentContent, EnvironmentsRepository } from './environments.repository.js';
import type { Networking } from './networking.js';
import { type PackageSpec, readPackages } from './packages.js';

const NOT_FOUND = 'Environment not found';

/** What an environment says, its secrets in the clear; never leaves the process but into a sandbox. */
export interface EnvironmentDefinition {
  name: string | null;
  packages: PackageSpec[];
  envVars: Record<string, string>;
  setupScript: string;
  networking: Networking;
}

/** What a sandbox is made of: one pinned version of an environment. */
export type PinnedEnvironment = Omit<EnvironmentDefinition, 'name'>;

const EMPTY: EnvironmentDefinition = {
  name: null,
  packages: [],
  envVars: {},
  setupScript: '',
  networking: { type: 'unrestricted' },
};

/** Environments of a user. Every method takes the owner; what is not theirs is not there. */
@Injectable()
export class EnvironmentsService {
  constructor(
    private readonly environments: EnvironmentsRepository,
    private readonly keys: KeyRing,
  ) {}

  async create(userId: string, dto: CreateEnvironmentDto): Promise<EnvironmentState> {
    const id = randomUUID();
    return this.environments.create(userId, id, this.contentOf(id, 1, apply(EMPTY, dto)));
  }

  /** Active ones, newest first. */
  async list(userId: string): Promise<EnvironmentState[]> {
    return this.environments.list(userId);
  }

  /** @throws Refusal 404. */
  async get(userId: string, id: string): Promise<EnvironmentState> {
    return this.require(userId, id);
  }

  /** @throws Refusal 404; 409 when archived or of another version. */
  async update(userId: string, id: string, dto: UpdateEnvironmentDto): Promise<EnvironmentState> {
    return updateOptimistically({
      submittedVersion: dto.version,
      archivedDetail: 'Cannot update an archived environment',
      read: () => this.require(userId, id),
      change: (current) => {
        const before = this.definitionOf(current);
        const after = apply(before, dto);
        return isDeepStrictEqual(before, after) ? undefined : after;
      },
      write: (current, after) =>
        this.environments.replace(current, this.contentOf(current.id, current.version + 1, after)),
    });
  }

  /** @throws Refusal 404; 409 when it is archived. */
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
   * @throws Refusal 404; 409 when a session ever referenced it.
   */
  async delete(userId: string, id: string): Promise<void> {
    const { id: known } = await this.require(userId, id);
    if (await this.environments.deleteUnreferenced(userId, known)) return;
    await this.require(userId, id);
    throw conflict('Cannot delete environment with existing sessions');
  }

  /** The whole history, newest first. @throws Refusal 404. */
  async versions(userId: string, id: string): Promise<EnvironmentState[]> {
    const environment = await this.require(userId, id);
    const versions = await this.environments.listVersionsUnscoped(environment.id);
    return versions.map((row) => stateIn(environment, row));
  }

  /** Whether the user has such an environment, archived or not. */
  async exists(userId: string, id: string): Promise<boolean> {
    return (await this.environments.findPin(userId, id)) !== undefined;
  }

  /**
   * The version that a session created now would get.
   * @throws Refusal 404; 409 when it is archived.
   */
  async pinForSession(userId: string, id: string): Promise<{ id: string; version: number }> {
    const pin = await this.environments.findPin(userId, id);
    if (!pin) throw notFound(NOT_FOUND);
    if (pin.archived) throw conflict('Cannot create session with archived environment');
    return { id: pin.id, version: pin.version };
  }

  /**
   * Notes, in the transaction that inserts the session, that the environment is in use: from then on it cannot be
   * deleted.
   * @returns the version to pin, or `undefined` when it was archived or deleted in the meantime.
   */
  async markReferenced(
    sql: SqlExecutor,
    userId: string,
    id: string,
  ): Promise<{ version: number } | undefined> {
    return this.environments.markReferenced(sql, userId, id);
  }

  /** One version with its secrets opened, for the runner. */
  async pinnedUnscoped(id: string, version: number): Promise<PinnedEnvironment> {
    const found = await this.environments.findVersionUnscoped(id, version);
    if (!found) throw new Error(`Environment ${id} has no version ${version}`);
    const { packages, setupScript, networking } = found.snapshot;
    const context = secretContext.environmentVersion(id, version);
    const envVars = this.keys.openRecord<string>(found.envVarsSealed, context);
    return { packages, envVars, setupScript, networking };
  }

  /** The versions that sessions created now would get, of those environments that may get any. */
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
  ): EnvironmentContent {
    return {
      snapshot: { ...shown, envVarKeys: Object.keys(envVars).sort() },
      sealed: {
        environment: this.keys.sealRecord(envVars, secretContext.environment(id)),
        version: this.keys.sealRecord(envVars, secretContext.environmentVersion(id, version)),
      },
    };
  }
}

/** What is in the body replaces what was there; what is not stays. */
function apply(before: EnvironmentDefinition, dto: CreateEnvironmentDto): EnvironmentDefinition {
  return {
    name: dto.name === undefined ? before.name : dto.name,
    packages: dto.packages === undefined ? before.packages : readPackages(dto.packages),
    envVars: dto.env_vars ?? before.envVars,
    setupScript: dto.setup_script ?? before.setupScript,
    networking: dto.networking === undefined ? before.networking : readNetworking(dto.networking),
  };
}

function stateIn(environment: EnvironmentEntity, row: EnvironmentVersionEntity): EnvironmentState {
  return {
    ...row.snapshot,
    id: environment.id,
    version: row.version,
    createdAt: environment.createdAt,
    updatedAt: row.createdAt,
    archivedAt: null,
  };
}
