import type { ComponentChildren } from 'preact';
import { useRef } from 'preact/hooks';
import { Link, useLocation } from 'wouter-preact';
import { moveFocus, useKeys } from '../lib/keyboard.js';
import type { Identified, Pages } from '../lib/pages.js';
import { ErrorBox } from './basics.js';

/** The states of a list: loading, refused, empty, and its items with a button for more. */
export function Listing<T>(props: {
  pages: Pages<T>;
  /** In the plural, such as `sessions`. */
  what: string;
  /** The items to show: those of the pages, or some of them. */
  items: readonly T[];
  empty: ComponentChildren;
  children: ComponentChildren;
}) {
  const { data, error, reload, more } = props.pages;
  return (
    <>
      {error && <ErrorBox error={error} retry={reload} />}
      {!data && !error && <p class="quiet padded">Loading the {props.what}…</p>}
      {data && props.items.length === 0 ? props.empty : props.children}
      {more && (
        <p class="padded">
          <button type="button" onClick={more}>
            Load more
          </button>
        </p>
      )}
    </>
  );
}

/** A searchable list of links, and beside it what the address names. */
export function ListPage<T extends Identified>(props: {
  title: string;
  /** In the singular, for the button that creates one, and the address of the form. */
  create: { what: string; path: string };
  search: { label: string; value: string; set: (value: string) => void };
  /** Further filters. */
  filters?: ComponentChildren;
  pages: Pages<T>;
  items: readonly T[];
  empty: ComponentChildren;
  /** Of the list's element, besides its own. */
  class?: string;
  addressOf: (item: T) => string;
  row: (item: T) => ComponentChildren;
  /** The item that the address names, and the address without it. */
  current: string | undefined;
  back: string;
  /** What stands beside the list. */
  children: ComponentChildren;
}) {
  const { title, create, search, current } = props;
  const [, navigate] = useLocation();
  const box = useRef<HTMLInputElement>(null);
  useKeys({
    j: () => moveFocus('.session-list a', 1),
    k: () => moveFocus('.session-list a', -1),
    n: () => navigate(create.path),
    '/': () => box.current?.focus(),
    Escape: () => {
      if (current !== undefined) navigate(props.back);
    },
  });
  return (
    <div class={`columns ${current === undefined ? 'list-only' : 'with-detail'}`}>
      <section class="list" aria-label={title}>
        <div class="toolbar">
          <h1>{title}</h1>
          <Link href={create.path} class="button primary">
            New {create.what}
          </Link>
        </div>
        <div class="toolbar filters">
          <input
            ref={box}
            type="search"
            aria-label={search.label}
            placeholder={`${search.label}  ( / )`}
            value={search.value}
            onInput={(event) => search.set(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === 'Escape') event.currentTarget.blur();
            }}
          />
          {props.filters}
        </div>
        <Listing
          pages={props.pages}
          what={title.toLowerCase()}
          items={props.items}
          empty={props.empty}
        >
          <ul class={`session-list ${props.class ?? ''}`}>
            {props.items.map((item) => (
              <li key={item.id}>
                <Link
                  href={props.addressOf(item)}
                  aria-current={item.id === current ? 'page' : undefined}
                >
                  {props.row(item)}
                </Link>
              </li>
            ))}
          </ul>
        </Listing>
      </section>
      {props.children}
    </div>
  );
}
