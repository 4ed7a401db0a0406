import { quote } from '../../common/shell-quote.js';

/** A patch that is longer is cut. Bytes. */
export const MAX_PATCH_BYTES = 64 * 1024 * 1024;

/** Of so many files that are too long for a patch, it is found out whether they differ. Further ones count as modified. */
const MAX_LARGE = 200;

/** What longer files, and all long files together, count as. Bytes. */
const LARGEST = 10 ** 12;

/** The number of nested repositories that are tried alone. Further ones are left out. */
const MAX_NESTED = 500;

/** What an empty repository is compared with; git knows it without having it. */
const EMPTY_TREE = '4b825dc642cb6eb9a060e54bf8d69288fbee4904';

/**
 * Compares the files of a repository with a commit, in the agent's sandbox.
 *
 * It uses none of the repository's own configuration: git gets an empty repository that only borrows the objects, with
 * an index and attributes of its own. So filters, hooks, file system monitors, external diffs and `include.path` of
 * the agent do not exist for it. No step runs `git status` or `git add`, which would start git in submodules.
 *
 * A pipe where git reads a file would stop it, so it is looked for first. The objects are borrowed folder by folder,
 * because git would follow the lists of further folders with objects that the agent may have written.
 *
 * The index is made from the base, then updated with all files that the base, the agent's commit, the agent's index or
 * the working tree have. Files that git cannot store, such as pipes, count as deleted; those that cannot be read, as
 * unchanged.
 *
 * Git fails at a nested repository without a commit, because it records nested repositories by their commits. Then each
 * folder among the paths is tried alone; for one that fails, its files are recorded instead.
 *
 * The content of files that alone are longer than a patch may be is not read, because a sparse file takes no room and
 * long to read. The patch leaves them out, and the list gets them afterwards with a content of the same name for all. Only
 * a file that is as long as in the base is read and compared: the base then really has that much.
 */
const PREPARE = `set -euo pipefail
repository=$PWD
if [ ! -d .git ] || [ -L .git ] || [ ! -d .git/objects ]; then exit 3; fi
pipes=$({
  find -L .git/objects -maxdepth 2 -type p,s,b,c -print -quit
  find . -name .git -prune -o \\( -name .gitignore -o -name .gitattributes \\) -xtype p,s,b,c -print -quit
} 2>/dev/null || true)
if [ -n "$pipes" ]; then exit 3; fi
work=$(mktemp -d "$TMPDIR/.changes-XXXXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/objects" "$work/objects/info" "$work/refs" "$work/info" "$work/borrowed"
echo 'ref: refs/heads/none' >"$work/HEAD"
for folder in .git/objects/pack .git/objects/??; do
  if [ -d "$folder" ]; then ln -s "$repository/$folder" "$work/borrowed/"; fi
done
export GIT_ALTERNATE_OBJECT_DIRECTORIES="$work/borrowed"
echo '* !diff !merge -text -ident -filter -working-tree-encoding -eol' >"$work/info/attributes"
printf '%s\\n' '[core]' 'bare = false' 'symlinks = true' 'fileMode = true' 'autocrlf = false' 'fsmonitor = false' \\
  'untrackedCache = false' 'hooksPath = /dev/null' 'attributesFile = /dev/null' 'excludesFile = /dev/null' \\
  'bigFileThreshold = 64m' >"$work/config"
if [ \${#base} = 64 ]; then
  printf '%s\\n' 'repositoryFormatVersion = 1' '[extensions]' 'objectFormat = sha256' >>"$work/config"
fi
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 GIT_NO_REPLACE_OBJECTS=1
export GIT_NO_LAZY_FETCH=1 GIT_TERMINAL_PROMPT=0 GIT_OPTIONAL_LOCKS=0 GIT_DIR="$work" GIT_WORK_TREE="$repository"

head=
line=
if [ -f .git/HEAD ] && [ ! -L .git/HEAD ]; then IFS= read -r -n 300 line <.git/HEAD || true; fi
case $line in
  *..*) ;;
  'ref: refs/'*)
    ref=\${line#ref: }
    if [ -f ".git/$ref" ]; then IFS= read -r -n 64 head <".git/$ref" || true
    elif [ -f .git/packed-refs ]; then
      head=$( { grep -aF -- " $ref" .git/packed-refs || true; } | while read -r sha name; do
        if [ "$name" = "$ref" ]; then echo "$sha"; break; fi
      done)
    fi ;;
  *) head=$line ;;
esac
case $head in *[!0-9a-f]*) head= ;; esac

storable() {
  sort -zu >"$work/all"
  comm -z -12 "$work/all" "$work/large" >>"$work/skipped"
  comm -z -23 "$work/all" "$work/unreadable" | comm -z -23 - "$work/large" | comm -z -23 - <(sort -z "$work/odd")
}
record() { git update-index -z --add --remove --replace --stdin; }
files_in() {
  (cd -P "./$1" && GIT_WORK_TREE=$PWD GIT_INDEX_FILE="$work/none" git ls-files -z --others --exclude-standard) |
    while IFS= read -r -d '' path; do printf '%s/%s\\0' "$1" "$path"; done
}
separate() {
  local path
  while IFS= read -r -d '' path; do
    path=\${path%/}
    if [ ! -d "$path" ] || [ -L "$path" ]; then printf '%s\\0' "$path" >&3; continue; fi
    tries=$((tries + 1))
    if [ "$tries" -gt ${MAX_NESTED} ] || printf '%s\\0' "$path" | record 2>/dev/null; then continue; fi
    separate < <(files_in "$path")
  done
}

same() {
  [ "$(git cat-file -s ":0:$1" 2>/dev/null)" = "$(stat -c %s "./$1")" ] &&
    [ "$(git rev-parse ":0:$1")" = "$(git hash-object --no-filters "./$1")" ]
}
large_bytes=0
find_large() {
  local path size mode tries=0 content
  content=$(printf 'too long\\0' | git hash-object -w --stdin)
  while IFS= read -r -d '' path; do
    tries=$((tries + 1))
    if [ "$tries" -le ${MAX_LARGE} ] && same "$path"; then continue; fi
    size=$(stat -c %s "./$path") || continue
    # A sparse file may be of any length, and the sum must stay a number.
    if [ "\${#size}" -gt 12 ]; then size=${LARGEST}; fi
    large_bytes=$((large_bytes + size))
    if [ "$large_bytes" -gt ${LARGEST} ]; then large_bytes=${LARGEST}; fi
    if [ -x "./$path" ]; then mode=100755; else mode=100644; fi
    printf '%s %s\\t%s\\0' "$mode" "$content" "$path" >>"$work/entries"
  done < <(sort -zu "$work/skipped" | comm -z -23 - "$work/unreadable")
}
with_large() { git update-index -z --add --replace --index-info <"$work/entries"; }

git read-tree "$base"
: >"$work/skipped"
: >"$work/entries"
find . -name .git -prune -o ! -type f ! -type l ! -type d -printf '%P\\0' >"$work/odd"
git update-index -z --force-remove --stdin <"$work/odd"
find . -name .git -prune -o -type f ! -readable -printf '%P\\0' | sort -z >"$work/unreadable"
find . -name .git -prune -o -type f -size +${MAX_PATCH_BYTES}c -printf '%P\\0' | sort -z >"$work/large"
{
  git ls-files -z --cached
  git ls-files -z --others --exclude-standard | sed -z 's,/$,,'
  if [ -n "$head" ]; then git ls-tree -r -z --name-only --full-tree "$head" || true; fi
  if [ -f .git/index ]; then GIT_INDEX_FILE="$repository/.git/index" git ls-files -z --cached || true; fi
} | storable >"$work/paths"
if ! record <"$work/paths" 2>/dev/null; then
  tries=0
  separate <"$work/paths" 3>"$work/separated"
  storable <"$work/separated" >"$work/paths"
  record <"$work/paths"
fi
find_large
`;

const DIFF =
  'git diff-index --cached -M --no-ext-diff --no-textconv --no-color --ignore-submodules=none';

const LIST = `${DIFF} --raw --numstat -z "$base"`;
const PATCH = `${DIFF} -p --binary --full-index --src-prefix=a/ --dst-prefix=b/ --submodule=short "$base"`;

const script = (base: string | null, ...steps: string[]): string =>
  [`base=${quote(base ?? EMPTY_TREE)}`, PREPARE, ...steps].join('\n');

/** The first line of the output is the agent's commit, or empty. What follows has the form of `--raw --numstat -z`. */
export const listScript = (base: string | null): string =>
  script(base, `echo "$head"`, 'with_large', LIST);

/**
 * Sets `length`, the bytes of the patch that follow, and `whole`, how many it would have with the files that were left
 * out, without their encoding.
 */
const measure = (limit: number): string =>
  `length=$(stat -c %s "$work/patch"); whole=$((length + large_bytes)); [ $length -le ${limit} ] || length=${limit}`;

/**
 * The first line of the output is the number of bytes of the whole patch, and how many of them follow, which is no more
 * than the limit.
 */
export const patchScript = (base: string | null, limit: number = MAX_PATCH_BYTES): string =>
  script(
    base,
    `${PATCH} >"$work/patch"`,
    measure(limit),
    `echo "$whole $length"`,
    `head -c ${limit} "$work/patch"`,
  );

/**
 * List and patch in one run. The first line of the output is the agent's commit, the number of bytes of the list, that of
 * the whole patch, and that of the part of it that follows the list.
 */
export const captureScript = (base: string | null, limit: number): string =>
  script(
    base,
    `${PATCH} >"$work/patch"`,
    measure(limit),
    'with_large',
    `${LIST} >"$work/list"`,
    `echo "$head $(stat -c %s "$work/list") $whole $length"`,
    `cat "$work/list"`,
    `head -c ${limit} "$work/patch"`,
  );
