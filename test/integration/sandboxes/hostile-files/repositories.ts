/** A repository that an agent has prepared for whoever compares it with its base. */
export interface HostileRepository {
  name: string;
  /**
   * Runs in the repository after its base was committed. `$TRAP` is a program that must never run, `$OUTSIDE` a folder with
   * a secret that may not be read or changed.
   */
  script: string;
}

/** Settings whose values are programs. Each with what else it takes to be used. */
const PROGRAMS: Record<string, string> = {
  'core.fsmonitor': ':',
  'core.hooksPath':
    'mkdir "$PWD/hooks"; for h in $HOOKS; do cp "$TRAP" hooks/$h; done; git config core.hooksPath "$PWD/hooks"',
  'core.pager': ':',
  'core.editor': ':',
  'core.askPass': ':',
  'core.alternateRefsCommand':
    'git init -q --bare other; echo "$PWD/other/objects" >.git/objects/info/alternates',
  'core.sshCommand':
    'git remote add origin ssh://nowhere/x; git config extensions.partialClone origin; git config remote.origin.promisor true; rm -rf .git/objects/??',
  'diff.external': ':',
  'diff.x.command': `echo '* diff=x' >.gitattributes`,
  'diff.x.textconv': `echo '* diff=x' >.git/info/attributes`,
  'filter.x.clean': `echo '* filter=x' >.gitattributes; git config filter.x.required true`,
  'filter.x.process': `echo '* filter=x' >.gitattributes; git config filter.x.required true`,
  'merge.x.driver': `echo '* merge=x' >.gitattributes`,
  'gpg.program': 'git config log.showSignature true',
  'credential.helper':
    'git remote add origin https://nowhere.invalid/x; git config remote.origin.promisor true',
  'alias.diff-index': 'git config alias.diff-index "!$TRAP"; git config alias.read-tree "!$TRAP"',
  'uploadpack.packObjectsHook': ':',
};

const hostile = (key: string, more: string): HostileRepository => ({
  name: `the setting ${key}`,
  script: `git config ${key} "$TRAP"; ${more}`,
});

const SETTINGS: HostileRepository[] = [
  ...Object.entries(PROGRAMS).map(([key, more]) => hostile(key, more)),
  {
    name: 'settings that are included',
    script: `printf '[core]\\n\\tfsmonitor = %s\\n' "$TRAP" >more; git config include.path "$PWD/more";
      git config includeIf.gitdir:/.path "$PWD/more"`,
  },
  {
    name: 'settings of a working tree',
    script: `git config extensions.worktreeConfig true; printf '[core]\\n\\tfsmonitor = %s\\n' "$TRAP" >.git/config.worktree`,
  },
  { name: 'another working tree', script: 'git config core.worktree "$OUTSIDE"' },
  {
    name: 'addresses that are programs',
    script: `git config remote.origin.url "ext::$TRAP"; git config protocol.allow always;
      git config url."ext::$TRAP".insteadOf https://; git config extensions.partialClone origin; rm -rf .git/objects/??`,
  },
  {
    name: 'hooks',
    script: 'mkdir -p .git/hooks; for h in $HOOKS; do cp "$TRAP" .git/hooks/$h; done',
  },
  {
    name: 'programs with the names of git',
    script: 'for p in git git-diff-index find sort comm sed mktemp stat; do cp "$TRAP" $p; done',
  },
];

const PLACES: HostileRepository[] = [
  {
    name: 'a .git that leads outside',
    script: 'rm -rf .git; echo "gitdir: $OUTSIDE/repository/.git" >.git',
  },
  {
    name: 'a .git that is a link outside',
    script: 'rm -rf .git; ln -s "$OUTSIDE/repository/.git" .git',
  },
  { name: 'no .git', script: 'rm -rf .git' },
  {
    name: 'objects of another repository',
    script: 'echo "$OUTSIDE/repository/.git/objects" >.git/objects/info/alternates',
  },
  {
    name: 'objects behind a link',
    script: 'mv .git/objects ..; ln -s "$OUTSIDE/repository/.git/objects" .git/objects',
  },
  { name: 'a common folder outside', script: 'echo "$OUTSIDE/repository/.git" >.git/commondir' },
  {
    name: 'an index that is a link outside',
    script: 'rm -f .git/index; ln -s "$OUTSIDE/secret" .git/index',
  },
  {
    name: 'an index with files behind a link',
    script: `ln -s "$OUTSIDE" link; git update-index --add --cacheinfo 100644,$(git hash-object -w a),link/secret`,
  },
  {
    name: 'an index with files outside',
    script: `name=xxxxxxxxxxxxxxxxxxxxxxxx; git update-index --add --cacheinfo 100644,$(git hash-object -w a),$name;
      LC_ALL=C sed -i "s,$name,../../outside/secret/x," .git/index`,
  },
  {
    name: 'an index with files of .git',
    script: `name=xxxxxxxxxxx; git update-index --add --cacheinfo 100644,$(git hash-object -w a),$name;
      LC_ALL=C sed -i "s,$name,.git/config," .git/index`,
  },
  {
    name: 'attributes and ignored files behind links',
    script: 'ln -s "$OUTSIDE/secret" .gitattributes; ln -s "$OUTSIDE/secret" .gitignore',
  },
  {
    name: 'links outside in place of files',
    script: 'rm a; ln -s "$OUTSIDE/secret" a; rm -r d; ln -s "$OUTSIDE" d',
  },
];

const HANGS: HostileRepository[] = [
  ...[
    'HEAD',
    'index',
    'config',
    'packed-refs',
    'info/exclude',
    'info/attributes',
    'shallow',
    'objects/info/alternates',
  ].map((file) => ({
    name: `a pipe as .git/${file}`,
    script: `mkdir -p .git/info; rm -f .git/${file}; mkfifo .git/${file}`,
  })),
  { name: 'a pipe as .gitignore', script: 'mkfifo .gitignore d/.gitignore' },
  { name: 'a pipe as .gitattributes', script: 'mkfifo .gitattributes d/.gitattributes' },
  {
    name: 'pipes as objects',
    script:
      'git rev-parse HEAD:a | { read -r o; f=.git/objects/${o:0:2}/${o:2}; rm -f $f; mkfifo $f; }',
  },
  {
    name: 'pipes as packs',
    script: 'git gc -q; for f in .git/objects/pack/*; do rm -f $f; mkfifo $f; done',
  },
  { name: 'a pipe as .gitmodules', script: 'mkfifo .gitmodules' },
  { name: 'a pipe as a file', script: 'rm a; mkfifo a' },
  {
    name: 'a pipe as the branch',
    script:
      'rm -f .git/refs/heads/*; mkfifo .git/refs/heads/main; echo ref: refs/heads/main >.git/HEAD',
  },
  { name: 'locks', script: 'touch .git/index.lock .git/HEAD.lock .git/config.lock' },
  {
    name: 'a huge index',
    script: `head -c 100000000 /dev/zero >.git/index; printf 'DIRC\\0\\0\\0\\2\\377\\377\\377\\377' | dd of=.git/index conv=notrunc status=none`,
  },
  {
    name: 'a huge list of refs',
    script: `yes '0000000000000000000000000000000000000000 refs/heads/none' | head -c 30000000 >.git/packed-refs; echo ref: refs/heads/main >.git/HEAD; rm -f .git/refs/heads/main`,
  },
  {
    name: 'a branch that is endless',
    script: 'ln -sf /dev/zero .git/refs/heads/main; echo ref: refs/heads/main >.git/HEAD',
  },
  {
    name: 'huge rules of what is ignored',
    script: `yes 'a*b*c*d*e*f*g' | head -c 300000 >.gitignore; touch $(printf 'abcdefabcdef%03d ' $(seq 50))`,
  },
  { name: 'a huge file with holes', script: 'truncate -s 100M large' },
  { name: 'very many files', script: 'mkdir m; cd m; seq 20000 | xargs touch' },
  {
    name: 'folders in two hundred levels',
    script: 'for i in $(seq 200); do mkdir x && cd x; done; touch y',
  },
];

const OBJECTS: HostileRepository[] = [
  {
    name: 'objects that are not what they say',
    script: `for o in .git/objects/??/*; do chmod u+w $o; echo nonsense >$o; done`,
  },
  {
    name: 'replaced objects',
    script: `git replace $(git rev-parse HEAD:a) $(echo "other" | git hash-object -w --stdin)`,
  },
  { name: 'grafts', script: `git rev-parse HEAD >.git/info/grafts` },
  {
    name: 'a repository in the repository',
    script: `git init -q n; cd n; git config core.fsmonitor "$TRAP"; echo x >x; git add .; git -c user.name=a -c user.email=a commit -qm x; cd ..;
      git add n; mkdir -p n/.git/hooks; for h in $HOOKS; do cp "$TRAP" n/.git/hooks/$h; done; echo '* filter=x' >n/.gitattributes; git -C n config filter.x.clean "$TRAP"`,
  },
  {
    name: 'names that mean .git elsewhere',
    script: `mkdir .GIT .git\\  git~1 2>/dev/null; touch .GIT/x 'git~1/x' '.git /x'`,
  },
  {
    name: 'names that git quotes',
    script: `touch $'a\\nb' $'\\xff' '"' '\\\\' $'\\x1b[2J' ' ' '-p' ':(top)'`,
  },
];

export const REPOSITORIES: HostileRepository[] = [...SETTINGS, ...PLACES, ...HANGS, ...OBJECTS];
