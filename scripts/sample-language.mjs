/**
 * Prints comments and sentences of the source at random, for somebody to read: none should need a second reading.
 * Usage: node scripts/sample-language.mjs [seed] [comments] [sentences]
 */
import { globSync, readFileSync } from 'node:fs';
import ts from 'typescript';

const [, , seedText = String(Date.now() % 1_000_000), comments = '50', sentences = '30'] =
  process.argv;
let seed = Number(seedText);

/** A number from 0 up to 1, the same for the same seed (mulberry32). */
function random() {
  seed = (seed + 0x6d2b79f5) | 0;
  let bits = Math.imul(seed ^ (seed >>> 15), 1 | seed);
  bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
  return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
}

const found = { comments: [], sentences: [] };
for (const path of globSync('{src,migrations}/**/*.ts', {
  exclude: (name) => name.endsWith('.spec.ts'),
})) {
  const text = readFileSync(path, 'utf8');
  const file = ts.createSourceFile(path, text, ts.ScriptTarget.Latest, true);
  const where = (at) => `${path}:${file.getLineAndCharacterOfPosition(at).line + 1}`;
  const seen = new Set();
  const look = (node) => {
    for (const { pos, end } of ts.getLeadingCommentRanges(text, node.getFullStart()) ?? []) {
      if (seen.has(pos)) continue;
      seen.add(pos);
      found.comments.push(`${where(pos)}\n${text.slice(pos, end)}`);
    }
    const isText = ts.isStringLiteralLike(node) || ts.isTemplateExpression(node);
    const isSentence = /[a-z]+ [a-z]+ [a-z]+ [a-z]+/i.test(node.getText());
    const isSql = /\b(SELECT|UPDATE|INSERT|DELETE|CREATE|ALTER)\b/.test(node.getText());
    if (isText && isSentence && !isSql) {
      found.sentences.push(`${where(node.getStart())}\n${node.getText()}`);
    }
    node.forEachChild(look);
  };
  look(file);
}
for (const [kind, count] of [
  ['comments', Number(comments)],
  ['sentences', Number(sentences)],
]) {
  const all = found[kind];
  process.stdout.write(
    `\n== ${Math.min(count, all.length)} of ${all.length} ${kind}, seed ${seedText}\n`,
  );
  for (let n = 0; n < count && all.length > 0; n += 1) {
    const [one] = all.splice(Math.floor(random() * all.length), 1);
    process.stdout.write(`\n${one}\n`);
  }
}
