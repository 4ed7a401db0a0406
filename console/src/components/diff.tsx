import { createTwoFilesPatch } from 'diff';
import { parse } from 'diff2html';
import type { DiffFile, DiffLine } from 'diff2html/lib/types';
import { Fragment } from 'preact';
import { useMemo } from 'preact/hooks';
import type { Edit } from '../session/entries.js';
import { literal, plain } from '../lib/untrusted.js';

/** The most lines of a diff that are put into the document. */
const MAX_LINES = 2_000;
const MAX_LENGTH = 400_000;

/** Edits of files, line by line. The library parses; the lines are text nodes. */
export default function Diff({ edits }: { edits: readonly Edit[] }) {
  const files = useMemo(() => edits.flatMap(parsed), [edits]);
  let left = MAX_LINES;
  return (
    <>
      {files.map((file, index) => {
        const shown = Math.max(0, left);
        left -= file.blocks.reduce((sum, { lines }) => sum + lines.length, 0);
        return <FileDiff key={index} file={file} limit={shown} />;
      })}
      {files.length === 0 && <p class="quiet">There is nothing to compare, or too much to show.</p>}
      {left < 0 && <p class="quiet">{-left} more lines are not shown.</p>}
    </>
  );
}

function parsed(edit: Edit): DiffFile[] {
  if ('patch' in edit) return parse(edit.patch.slice(0, MAX_LENGTH));
  if (edit.before.length + edit.after.length > MAX_LENGTH) return [];
  // Control characters in the name would be lines of the patch.
  const path = plain(edit.path).replaceAll('\n', ' ');
  return parse(createTwoFilesPatch(path, path, edit.before, edit.after, '', '', { context: 3 }));
}

function FileDiff({ file, limit }: { file: DiffFile; limit: number }) {
  let left = limit;
  return (
    <figure class="diff" data-path={nameOf(file)}>
      <figcaption>
        <code>
          {file.isRename && `${literal(unquoted(file.oldName))} → `}
          {literal(nameOf(file))}
        </code>
        {file.isNew && <span class="quiet">new</span>}
        {file.isDeleted && <span class="quiet">deleted</span>}
        {file.addedLines + file.deletedLines > 0 && (
          <>
            <span class="added">+{file.addedLines}</span>{' '}
            <span class="removed">−{file.deletedLines}</span>
          </>
        )}
      </figcaption>
      {file.blocks.every(({ lines }) => lines.length === 0) && (
        <p class="quiet padded">{file.isBinary ? 'A binary file' : 'No line has changed'}</p>
      )}
      <div
        class="scroll-x"
        tabIndex={0}
        role="region"
        aria-label={`Changes of ${literal(nameOf(file))}`}
      >
        <table>
          <tbody>
            {file.blocks.map((block, number) => {
              const lines = block.lines.slice(0, Math.max(0, left));
              left -= block.lines.length;
              return (
                <Fragment key={number}>
                  {number > 0 && lines.length > 0 && (
                    <tr class="hunk">
                      <td colSpan={3}>{literal(block.header)}</td>
                    </tr>
                  )}
                  {lines.map((line, index) => (
                    <Line key={index} line={line} />
                  ))}
                </Fragment>
              );
            })}
          </tbody>
        </table>
      </div>
    </figure>
  );
}

const nameOf = ({ newName, oldName }: DiffFile): string =>
  unquoted(newName === '/dev/null' || newName === '' ? oldName : newName);

const ESCAPES: Readonly<Record<string, number>> = { a: 7, b: 8, t: 9, n: 10, v: 11, f: 12, r: 13 };

/** Reads a name as git writes it where it has special characters: always, if it has a backslash. */
function unquoted(raw: string): string {
  // Behind a name with a space stands a tab, which the library leaves there with the quote before it.
  const name = raw.replace(/"?\t$/, '');
  if (!name.includes('\\')) return name;
  const bytes = [...name.matchAll(/\\([0-7]{3})|\\(.)|([^\\]+)/gsu)].flatMap(
    ([, octal, escaped, text]) => {
      if (octal !== undefined) return [Number.parseInt(octal, 8)];
      if (escaped !== undefined && ESCAPES[escaped] !== undefined) return [ESCAPES[escaped]];
      return [...new TextEncoder().encode(escaped ?? text)];
    },
  );
  return new TextDecoder().decode(new Uint8Array(bytes));
}

const CLASSES: Readonly<Record<string, string>> = { insert: 'added', delete: 'removed' };

function Line({ line }: { line: DiffLine }) {
  return (
    <tr class={CLASSES[line.type] ?? ''}>
      <td class="line-number">{line.oldNumber}</td>
      <td class="line-number">{line.newNumber}</td>
      <td class="line">{literal(line.content)}</td>
    </tr>
  );
}
