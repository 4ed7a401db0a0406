import {
  elementScroll,
  observeElementOffset,
  observeElementRect,
  Virtualizer,
} from '@tanstack/virtual-core';
import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from 'preact/hooks';

/** Closer to the end than this counts as being at the end. Pixels. */
const AT_END = 40;

/**
 * A list of which only the visible part is in the document, so that it may have any number of items of any height. It
 * follows its end only while the reader is there; otherwise a button says how much is new.
 */
export function VirtualList(props: {
  count: number;
  estimate: number;
  label: string;
  /** Start at the end, and follow it. */
  follow: boolean;
  keyOf: (index: number) => number | string;
  render: (index: number) => ComponentChildren;
}) {
  const { count, estimate, follow } = props;
  const box = useRef<HTMLDivElement>(null);
  const [, redraw] = useReducer((value: number) => value + 1, 0);
  const atEnd = useRef(follow);
  const [seen, setSeen] = useState(count);
  const [virtualizer] = useState(
    () =>
      new Virtualizer<HTMLDivElement, HTMLDivElement>({
        count,
        getScrollElement: () => box.current,
        estimateSize: () => estimate,
        overscan: 12,
        scrollToFn: elementScroll,
        observeElementRect,
        observeElementOffset,
        onChange: () => redraw(undefined),
      }),
  );
  const keyOf = useRef(props.keyOf);
  keyOf.current = props.keyOf;
  // Always the same function: with another one, the virtualizer computes the places of all items again.
  const [getItemKey] = useState(() => (index: number) => keyOf.current(index));
  virtualizer.setOptions({ ...virtualizer.options, count, getItemKey });
  useEffect(() => virtualizer._didMount(), [virtualizer]);
  useLayoutEffect(() => {
    virtualizer._willUpdate();
    const element = box.current;
    if (element && follow && atEnd.current) element.scrollTop = element.scrollHeight;
  });
  const onScroll = (): void => {
    const element = box.current;
    if (!element) return;
    atEnd.current = element.scrollHeight - element.scrollTop - element.clientHeight < AT_END;
    if (atEnd.current) setSeen(count);
  };
  const toEnd = (): void => {
    atEnd.current = true;
    setSeen(count);
    redraw(undefined);
  };
  const fresh = atEnd.current ? 0 : count - seen;
  return (
    <div class="virtual">
      <div
        class="virtual-box"
        ref={box}
        onScroll={onScroll}
        tabIndex={0}
        role="log"
        aria-label={props.label}
        aria-live="off"
      >
        <div class="virtual-content" style={{ height: `${virtualizer.getTotalSize()}px` }}>
          {virtualizer.getVirtualItems().map((item) => (
            <div
              key={item.key}
              data-index={item.index}
              class="virtual-item"
              style={{ transform: `translateY(${item.start}px)` }}
              ref={(element) => {
                if (element) virtualizer.measureElement(element);
              }}
            >
              {props.render(item.index)}
            </div>
          ))}
        </div>
      </div>
      {follow && fresh > 0 && (
        <button type="button" class="primary jump" onClick={toEnd}>
          {fresh} new ↓
        </button>
      )}
    </div>
  );
}
