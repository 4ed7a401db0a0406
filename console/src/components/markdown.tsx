import { lexer, type Token, type Tokens } from 'marked';
import type { ComponentChildren } from 'preact';
import { useMemo } from 'preact/hooks';
import { safeLink, visible } from '../lib/untrusted.js';

/** Longer texts are shown as they are: the parser's time is not bounded by their length alone. */
const MAX_LENGTH = 100_000;

/**
 * A model's Markdown. It is parsed, but never becomes HTML: each token is an element of its own with text nodes, markup
 * is shown as text, links show where they lead, and images are only named.
 */
export function Markdown({ text }: { text: string }) {
  const tokens = useMemo(
    () => (text.length > MAX_LENGTH ? undefined : lexer(visible(text))),
    [text],
  );
  if (!tokens) return <pre class="output">{visible(text)}</pre>;
  return <div class="markdown">{blocks(tokens)}</div>;
}

const blocks = (tokens: readonly Token[]): ComponentChildren =>
  tokens.map((token, index) => <Block key={index} token={token as Tokens.Generic} />);

function Block({ token }: { token: Tokens.Generic }) {
  switch (token.type) {
    case 'space':
    case 'def':
      return null;
    case 'heading': {
      // The page has a heading of its own; a model's are below it.
      const Tag = `h${Math.min((token as Tokens.Heading).depth + 2, 6)}` as 'h3';
      return <Tag>{inline(token.tokens)}</Tag>;
    }
    case 'code':
      return <pre class="output">{(token as Tokens.Code).text}</pre>;
    case 'blockquote':
      return <blockquote>{blocks(token.tokens ?? [])}</blockquote>;
    case 'list': {
      const list = token as Tokens.List;
      const items = list.items.map((item, index) => (
        <li key={index}>
          {item.task && (item.checked ? '☑ ' : '☐ ')}
          {blocks(item.tokens)}
        </li>
      ));
      return list.ordered ? <ol start={Number(list.start) || 1}>{items}</ol> : <ul>{items}</ul>;
    }
    case 'table': {
      const { header, rows } = token as Tokens.Table;
      return (
        <div class="scroll-x">
          <table>
            <thead>
              <tr>
                {header.map((cell, index) => (
                  <th key={index}>{inline(cell.tokens)}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((row, index) => (
                <tr key={index}>
                  {row.map((cell, column) => (
                    <td key={column}>{inline(cell.tokens)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      );
    }
    case 'hr':
      return <hr />;
    case 'paragraph':
      return <p>{inline(token.tokens)}</p>;
    case 'text':
      return <>{token.tokens ? inline(token.tokens) : token.raw}</>;
    default:
      // Markup, and whatever else the parser may know one day.
      return <p>{token.raw}</p>;
  }
}

const inline = (tokens: readonly Token[] = []): ComponentChildren =>
  tokens.map((token, index) => <Inline key={index} token={token as Tokens.Generic} />);

function Inline({ token }: { token: Tokens.Generic }) {
  switch (token.type) {
    case 'strong':
      return <strong>{inline(token.tokens)}</strong>;
    case 'em':
      return <em>{inline(token.tokens)}</em>;
    case 'del':
      return <del>{inline(token.tokens)}</del>;
    case 'codespan':
      return <code>{(token as Tokens.Codespan).text}</code>;
    case 'br':
      return <br />;
    case 'escape':
      return <>{(token as Tokens.Escape).text}</>;
    case 'link': {
      const { href, text } = token as Tokens.Link;
      return <ShownLink href={href} text={text} />;
    }
    case 'image': {
      const { href, text } = token as Tokens.Image;
      return <span class="quiet">[image {text === '' ? href : `${text}: ${href}`}]</span>;
    }
    case 'text':
      return <>{token.tokens ? inline(token.tokens) : token.raw}</>;
    default:
      return <>{token.raw}</>;
  }
}

/** A link that always shows where it leads, and leads only to web pages. */
function ShownLink({ href, text }: { href: string; text: string }) {
  const target = safeLink(href);
  if (target === undefined) return <>{`${text} (${href})`}</>;
  return (
    <>
      {text !== href && text !== target && `${text} `}
      <a href={target} target="_blank" rel="noreferrer noopener nofollow" class="target">
        {target}
      </a>
    </>
  );
}
