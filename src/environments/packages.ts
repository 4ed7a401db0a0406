import type { ValidationItem } from '../common/errors.js';
import { isJsonObject, problem, under } from '../common/validation/dto.js';

/** The package managers that an environment may install with. */
export const PACKAGE_MANAGERS = ['apt', 'pip', 'npm', 'cargo', 'gem', 'go'] as const;
export type PackageManager = (typeof PACKAGE_MANAGERS)[number];

/** The version syntax that a package manager accepts, and its description for error messages. */
interface VersionRule {
  pattern: RegExp;
  expected: string;
}

/** Matches one or more `item`s, separated by commas. */
const list = (item: RegExp): RegExp => new RegExp(`^${item.source}(?:,${item.source})*$`);

const PIP_CLAUSE = /(?:===|[=!~<>]=|[<>])v?\d[A-Za-z0-9.!+_-]*(?:\.\*)?/;
const CARGO_CLAUSE = /(?:[=^~]|[<>]=?)\d+(?:\.\d+){0,2}(?:[+-][A-Za-z0-9.+-]+)?/;
const GEM_CLAUSE = /(?:!=|~>|[<>]=?|=)?\d[A-Za-z0-9.-]*/;

/** Versions that a manager does not understand are rejected by validation instead of failing in the sandbox. */
export const VERSION_RULES: Readonly<Record<PackageManager, VersionRule>> = {
  apt: {
    pattern: /^\d[A-Za-z0-9.+~:*-]*$/,
    expected: 'a Debian version such as 1.7.1-3, or a beginning with an asterisk such as 1.7*',
  },
  pip: {
    pattern: new RegExp(`${/^v?\d[A-Za-z0-9.!+_-]*(?:\.\*)?$/.source}|${list(PIP_CLAUSE).source}`),
    expected: 'a version such as 2.32.3, or specifiers such as >=1.2,<2',
  },
  npm: {
    pattern: /^(?:(?:\^|~>?|[<>]=?|=)?v?[\dxX*][A-Za-z0-9.*+-]*|[A-Za-z][A-Za-z0-9._-]*)$/,
    expected: 'a version, a range such as ^5.9 or >=5, or a tag such as latest',
  },
  cargo: {
    pattern: new RegExp(
      `${/^\d+\.\d+\.\d+(?:[+-][A-Za-z0-9.+-]+)?$/.source}|${list(CARGO_CLAUSE).source}`,
    ),
    expected: 'a whole version such as 14.1.0, or requirements such as ^14.1 or >=14,<15',
  },
  gem: {
    pattern: list(GEM_CLAUSE),
    expected: 'a version such as 13.2.1, or requirements such as ~>13.0 or >=13,<14',
  },
  go: {
    pattern:
      /^(?:(?:[<>]=?)?v?\d+(?:\.\d+){0,2}(?:[+-][A-Za-z0-9.+-]+)?|[A-Za-z0-9][A-Za-z0-9._-]*)$/,
    expected: 'a version such as v1.2.3, a query such as >=v1.2.0, latest, a branch or a commit',
  },
};

/** One package to install; without a version, the newest. */
export interface PackageSpec {
  manager: PackageManager;
  name: string;
  version?: string;
}

export const MAX_PACKAGES = 256;
export const MAX_PACKAGE_TEXT = 214;
/** `libc6:amd64`, `@scope/name`, `requests[socks]`, `golang.org/x/tools/gopls`; never an option, a path or a shell word. */
export const PACKAGE_NAME = /^@?[A-Za-z0-9][A-Za-z0-9._+~:/[\],-]*$/;
/**
 * `1.7`, `1:2.3-4+deb12u1`, `latest`, `^5.9.0`, `~>2.0`, `>=1.2,<2`: the syntax of all managers; each one accepts a
 * part of it.
 */
export const PACKAGE_VERSION = /^[A-Za-z0-9^~<>=!*][A-Za-z0-9._+~:^<>=!*,-]*$/;
const SHORT_FORM = 'Must be a package such as "jq", "npm:typescript" or "pip:requests@2.32.3"';

/** Finds the problems of the body's `packages`, with their locations. */
export function packagesProblems(value: unknown): ValidationItem[] {
  if (!Array.isArray(value)) return [problem('list_type', 'Must be a list of packages')];
  if (value.length > MAX_PACKAGES) {
    return [problem('too_long', `Must not have more than ${MAX_PACKAGES} items`)];
  }
  return value.flatMap((item: unknown, index) => under([index], packageProblems(item)));
}

/** Valid `packages` of a body → the object form of each. */
export function readPackages(value: readonly (PackageSpec | string)[]): PackageSpec[] {
  return value.map((item) => {
    const { manager, name, version } = typeof item === 'string' ? readShortForm(item) : item;
    return { manager: manager as PackageManager, name, ...(version !== undefined && { version }) };
  });
}

function packageProblems(item: unknown): ValidationItem[] {
  if (typeof item === 'string') {
    const [wrong] = memberProblems(readShortForm(item));
    // A string has no members to point at.
    return wrong ? [problem('package', isAboutVersion(wrong) ? wrong.msg : SHORT_FORM)] : [];
  }
  if (!isJsonObject(item)) return [problem('object_type', 'Must be an object or a string')];
  return memberProblems(item);
}

function memberProblems(item: Readonly<Record<string, unknown>>): ValidationItem[] {
  const { manager, name, version } = item;
  return [
    ...(manager === undefined
      ? [problem('missing', 'Field required', ['manager'])]
      : typeof manager !== 'string'
        ? [problem('string_type', 'Must be a string', ['manager'])]
        : PACKAGE_MANAGERS.includes(manager as PackageManager)
          ? []
          : [problem('enum', `Must be one of ${PACKAGE_MANAGERS.join(', ')}`, ['manager'])]),
    ...(name === undefined
      ? [problem('missing', 'Field required', ['name'])]
      : textProblems('name', name, PACKAGE_NAME)),
    ...(version === undefined ? [] : versionProblems(manager, version)),
  ];
}

function isAboutVersion({ loc }: ValidationItem): boolean {
  return loc[0] === 'version';
}

function versionProblems(manager: unknown, version: unknown): ValidationItem[] {
  const wrong = textProblems('version', version, PACKAGE_VERSION);
  if (wrong.length > 0 || !PACKAGE_MANAGERS.includes(manager as PackageManager)) return wrong;
  const { pattern, expected } = VERSION_RULES[manager as PackageManager];
  return pattern.test(version as string)
    ? []
    : [problem('package_version', `${manager as string} takes ${expected}`, ['version'])];
}

function textProblems(member: string, value: unknown, shape: RegExp): ValidationItem[] {
  if (typeof value !== 'string') return [problem('string_type', 'Must be a string', [member])];
  if (value.length > MAX_PACKAGE_TEXT) {
    return [
      problem('string_too_long', `Must not be longer than ${MAX_PACKAGE_TEXT} characters`, [
        member,
      ]),
    ];
  }
  const ok = shape.test(value) && !value.split('/').includes('..');
  return ok ? [] : [problem('string_pattern_mismatch', `Not a package ${member}`, [member])];
}

/** `manager:name@version`; the first `:` ends the manager, an `@` that is not the first character ends the name. */
function readShortForm(text: string): { manager: string; name: string; version?: string } {
  const [, manager = 'apt', rest = ''] = /^(?:([a-z]+):)?(.*)$/s.exec(text) ?? [];
  const at = rest.lastIndexOf('@');
  return at > 0
    ? { manager, name: rest.slice(0, at), version: rest.slice(at + 1) }
    : { manager, name: rest };
}
